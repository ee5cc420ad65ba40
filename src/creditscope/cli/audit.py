"""``creditscope audit``: judge logs."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit


class Format(StrEnum):
    """How to print an audit."""

    table = "table"
    json = "json"
    md = "md"
    latex = "latex"


class ProtocolName(StrEnum):
    """Which checks, with which thresholds."""

    standard = "standard"
    published = "published"


def audit(
    logs: Annotated[list[Path], typer.Argument(help="Log files or folders, ours or in a published JSON layout.")],
    protocol: Annotated[ProtocolName, typer.Option(help="Which checks decide.")] = ProtocolName.standard,
    baseline: Annotated[
        str | None, typer.Option(metavar="LOGS|NUMBER", help="Frozen-blocks runs, or their accuracy as a fraction.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="CHECK=VALUE", help="A threshold of your own, e.g. scale=40.")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="For logs that do not state it: blocks=4, h0=9, ratio=0.4."),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    timeline: Annotated[bool, typer.Option(help="When each check first fired, and what an alert would save.")] = True,
    decisions: Annotated[bool, typer.Option("--decisions", help="What accuracy and Γ alone would have said.")] = False,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Which thresholds change nothing.")] = False,
    fail_on_walkback: Annotated[
        bool, typer.Option("--fail-on-walkback", help="Exit 1 if any claim is walked back, 2 if any file was skipped.")
    ] = False,
) -> None:
    """Judge logs: trustworthy, walked back or incomplete, with reasons and what would settle what is open."""
    from creditscope.protocol.audit import audit as judge
    from creditscope.records.load import without_collection

    thresholds, assumed = _numbers(set_, "--set"), _numbers(assume, "--assume")
    with without_collection():
        result = judge(logs, protocol.value, _baseline(baseline), thresholds, assumed)
        typer.echo(_print(result, format_, timeline=timeline, decisions=decisions, sensitivity=sensitivity))
    for skipped in result.skipped:
        typer.echo(f"skipped {skipped.file}: {skipped.why}", err=True)
    if fail_on_walkback and result.skipped:
        raise typer.Exit(2)
    if fail_on_walkback and result.walked_back:
        raise typer.Exit(1)


def _print(result: "Audit", form: Format, *, timeline: bool, decisions: bool, sensitivity: bool) -> str:
    import json
    import shutil

    from creditscope.protocol.present import Section, heading, render, sections, verdict_table

    if form is Format.json:
        return json.dumps(result.to_dict(), indent=2, allow_nan=False)
    shown = sections(result, timeline=timeline, decisions=decisions, sensitivity=sensitivity)
    if form is Format.latex:
        extra = [section for section in shown[1:] if section.table is not None and (decisions or sensitivity)]
        return render([Section(heading(result), verdict_table(result)), *extra], "latex")
    return render(shown, "md" if form is Format.md else "table", shutil.get_terminal_size((120, 24)).columns)


def _baseline(text: str | None) -> float | Path | None:
    """A number, or the path of logs."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return Path(text)


def _numbers(given: list[str] | None, option: str) -> dict[str, float]:
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
