"""Options that several verbs share, and how their text is read."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from creditscope.cli.say import say
from creditscope.registry import CHECK_GROUP, Registry

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit
    from creditscope.protocol.presets import Protocol as Rules
    from creditscope.records.load import Loaded, Reduce
    from creditscope.records.log import RunLog
    from creditscope.records.select import Selection
    from creditscope.records.spec import RunSpec


class ProtocolName(StrEnum):
    """Which checks, with which thresholds."""

    standard = "standard"
    published = "published"
    first_standard = "standard@1"


class TextOrJson(StrEnum):
    """How to print."""

    text = "text"
    json = "json"


Logs = Annotated[list[Path], typer.Argument(help="Log files or folders, ours or in a published JSON layout.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="KEY=VALUE,…", help="Only runs of this setting, e.g. epochs=100,seed=42,123."),
]
Methods = Annotated[str | None, typer.Option("--methods", metavar="A,B", help="Only these methods, e.g. bp,dfa-rms.")]
Form = Annotated[TextOrJson, typer.Option("--format", help="How to print.")]
Protocol = Annotated[ProtocolName, typer.Option(help="Which checks decide.")]
Baseline = Annotated[
    str | None, typer.Option(metavar="LOGS|NUMBER", help="Frozen-blocks runs, or their accuracy as a fraction.")
]
Thresholds = Annotated[
    list[str] | None, typer.Option("--set", metavar="CHECK=VALUE", help="A threshold of your own, e.g. scale=40.")
]
Plan = Annotated[
    Path | None,
    typer.Option(metavar="SPEC.yaml", help="The sweep that was planned: seeds and methods without a log are named."),
]
OwnRules = Annotated[
    list[str] | None,
    typer.Option("--rules", metavar="package.module:Name", help="A credit rule of your own; repeat for more."),
]
Assumed = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="For logs that do not state it: blocks=4, h0=9, ratio=0.4."),
]
# Names only: what stands behind them is imported when it is asked for.
_INSTALLED = "".join(f" or {name}" for name in Registry("check", CHECK_GROUP, {}).names())
Checks = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="MODULE:NAME",
        help=f"A check on top of the protocol's, which counts in the verdict: package.module:Name{_INSTALLED}.",
    ),
]
AdvisoryChecks = Annotated[
    list[str] | None,
    typer.Option("--advisory-check", metavar="MODULE:NAME", help="The same, but it never counts in the verdict."),
]


def selection_of(where: list[str] | None, methods: str | None) -> "Selection":
    """The runs that a command line asks for."""
    from creditscope.records.select import Selection

    return Selection.of(where or (), methods)


def read_logs(
    logs: Iterable[Path], where: list[str] | None, methods: str | None, reduce: "Reduce | None" = None
) -> "Loaded":
    """The logs that a command line asks for, as ``reduce`` leaves them; what was not read is named on stderr."""
    from creditscope.records.load import load_logs

    wanted = selection_of(where, methods)
    loaded = load_logs(logs, reduce)
    say_skipped(loaded)
    return wanted.of_loaded(loaded)


def say_skipped(found: "Loaded | Audit") -> None:
    """Name on stderr what was not read."""
    for skipped in found.skipped:
        say(f"skipped {skipped.file}: {skipped.why}", err=True)


def protocol_of(
    name: str,
    thresholds: list[str] | None = None,
    checks: Iterable[str] | None = None,
    advisory: Iterable[str] | None = None,
) -> "Rules":
    """The protocol that a command line describes."""
    from creditscope.protocol.presets import protocol_named

    made = protocol_named(name).with_checks(checks or (), advisory or ())
    return made.with_thresholds(parse_numbers(thresholds, "--set"))


def planned(path: Path | None, logs: "Iterable[RunLog]") -> "list[RunSpec] | None":
    """The runs of the sweep that was planned, where one is given."""
    if path is None:
        return None
    from creditscope.plans.declared import declared

    return declared(path, [log.spec for log in logs])


def parse_baseline(text: str | None) -> float | Path | None:
    """A number, or the path of logs."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return Path(text)


def parse_numbers(given: list[str] | None, option: str) -> dict[str, float]:
    """``a=1,b=2``, or the option repeated, as a mapping."""
    from creditscope.errors import BadInput

    found: dict[str, float] = {}
    for part in (part.strip() for text in given or () for part in text.split(",")):
        name, equals, value = part.partition("=")
        try:
            if not equals or not name.strip():
                raise ValueError
            found[name.strip()] = float(value)
        except ValueError:
            raise BadInput(
                f"{option} wants NAME=NUMBER, got {part!r}; write e.g. {option} {_EXAMPLE[option]}"
            ) from None
    return found


_EXAMPLE = {"--set": "scale=40", "--assume": "blocks=4,h0=9"}
