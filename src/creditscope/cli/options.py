"""Options that several verbs share, and how their text is read."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ProtocolName(StrEnum):
    """Which checks, with which thresholds."""

    standard = "standard"
    published = "published"


Logs = Annotated[list[Path], typer.Argument(help="Log files or folders, ours or in a published JSON layout.")]
Protocol = Annotated[ProtocolName, typer.Option(help="Which checks decide.")]
Baseline = Annotated[
    str | None, typer.Option(metavar="LOGS|NUMBER", help="Frozen-blocks runs, or their accuracy as a fraction.")
]
Thresholds = Annotated[
    list[str] | None, typer.Option("--set", metavar="CHECK=VALUE", help="A threshold of your own, e.g. scale=40.")
]
Assumed = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="For logs that do not state it: blocks=4, h0=9, ratio=0.4."),
]


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
