"""The command line: one verb a file; each parses, calls one library function, prints, sets the exit code."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from creditscope.cli.audit import audit
from creditscope.cli.compare import compare
from creditscope.cli.explain import explain
from creditscope.cli.figure import figure
from creditscope.cli.identify import identify
from creditscope.cli.lint import lint
from creditscope.cli.ls import ls
from creditscope.cli.probe import probe
from creditscope.cli.report import report
from creditscope.cli.reproduce import reproduce
from creditscope.cli.rules import rules
from creditscope.cli.say import say
from creditscope.cli.show import show
from creditscope.cli.sweep import sweep
from creditscope.cli.train import train
from creditscope.errors import CreditscopeError
from creditscope.signals import stop_once

INTERRUPTED = 130  # what typer exits with after Ctrl-C


def _version(wanted: bool) -> None:
    if wanted:
        from creditscope.records.provenance import version

        typer.echo(f"creditscope {version('creditscope')}")
        raise typer.Exit


app = typer.Typer(
    name="creditscope",
    help="Train networks with backprop-free credit rules, measure what credit reaches every block, judge the claim.",
    epilog="Start with: creditscope reproduce demo   (under two minutes on two cores)",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """What stands before the verb."""


for verb in (reproduce, train, sweep, audit, figure, report, compare, explain, identify, ls, show, rules, probe, lint):
    app.command()(verb)


def main() -> None:
    """Run the command line: a user's mistake is one line on stderr and exit 2, never a traceback."""
    # A cluster ends a job with SIGTERM, a closed terminal with SIGHUP: as on Ctrl-C, training leaves a checkpoint.
    stop_once(signal.SIGTERM, signal.SIGHUP)
    # Whoever closed an output wants nothing there.
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    try:
        app()
    except CreditscopeError as error:
        _fail(error.with_flags)
    except OSError as error:
        if error.filename is None:
            _fail(f"the output cannot be written: {error.strerror or error}; free space, or send it elsewhere")
        name = Path(os.fsdecode(error.filename)).name
        _fail(f"{name}: {error.strerror or error}; check the path and its permissions")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            say("creditscope: stopped; what was logged is kept, and --resume goes on with it", err=True)
        raise


def _fail(message: str) -> NoReturn:
    with suppress(OSError):  # the terminal may be gone
        say(f"creditscope: {message}".replace("\n", " "), err=True)
    sys.exit(2)
