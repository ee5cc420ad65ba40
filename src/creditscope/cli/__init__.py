"""The command line: one verb a file; each parses, calls one library function, prints, sets the exit code."""

import os
import sys

import typer

from creditscope.cli.audit import audit
from creditscope.cli.figure import figure
from creditscope.cli.lint import lint
from creditscope.cli.ls import ls
from creditscope.cli.probe import probe
from creditscope.cli.reproduce import reproduce
from creditscope.cli.show import show
from creditscope.cli.train import train
from creditscope.errors import CreditscopeError

app = typer.Typer(
    name="creditscope",
    help="Train networks with backprop-free credit rules, measure what credit reaches every block, judge the claim.",
    epilog="Start with: creditscope reproduce demo   (about a minute on two cores)",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (reproduce, train, audit, figure, ls, show, probe, lint):
    app.command()(verb)


def main() -> None:
    """Run the command line: a user's mistake is one line on stderr and exit 2, never a traceback."""
    try:
        app()
    except CreditscopeError as error:
        typer.echo(f"creditscope: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("creditscope: stopped; what was logged is kept. Go on with the same command and --resume", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has left: not an error of ours. Keep the interpreter from complaining on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
