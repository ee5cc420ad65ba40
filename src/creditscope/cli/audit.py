"""``creditscope audit``: judge logs."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from creditscope.cli.options import (
    AdvisoryChecks,
    Assumed,
    Baseline,
    Checks,
    Logs,
    Plan,
    Protocol,
    ProtocolName,
    Thresholds,
    parse_baseline,
    parse_numbers,
    planned,
    protocol_of,
)
from creditscope.cli.say import say

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit


class Format(StrEnum):
    """How to print an audit."""

    table = "table"
    json = "json"
    md = "md"
    latex = "latex"


def audit(
    logs: Logs,
    protocol: Protocol = ProtocolName.standard,
    baseline: Baseline = None,
    check: Checks = None,
    advisory_check: AdvisoryChecks = None,
    set_: Thresholds = None,
    assume: Assumed = None,
    plan: Plan = None,
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

    chosen, assumed = protocol_of(protocol.value, set_, check, advisory_check), parse_numbers(assume, "--assume")
    with without_collection():
        result = judge(logs, chosen, parse_baseline(baseline), assume=assumed, keep_rows=False)
        if (declared := planned(plan, result.logs)) is not None:
            result = result.against(declared)
        say(_print(result, format_, timeline=timeline, decisions=decisions, sensitivity=sensitivity))
    for skipped in result.skipped:
        say(f"skipped {skipped.file}: {skipped.why}", err=True)
    if fail_on_walkback and result.skipped:
        raise typer.Exit(2)
    if fail_on_walkback and result.walked_back:
        raise typer.Exit(1)


def _print(result: "Audit", form: Format, *, timeline: bool, decisions: bool, sensitivity: bool) -> str:
    import io
    import json
    import shutil

    from creditscope.protocol.present import Section, caption, render, sections, verdict_table

    if form is Format.json:
        text = io.StringIO()
        # Piece by piece: json.dumps holds every piece until the last, five times the size of the text.
        text.writelines(json.JSONEncoder(indent=2, allow_nan=False).iterencode(result.to_dict()))
        return text.getvalue()
    shown = sections(result, timeline=timeline, decisions=decisions, sensitivity=sensitivity)
    if form is Format.latex:
        extra = [section for section in shown[1:] if section.table is not None and (decisions or sensitivity)]
        return render([Section(caption(result), verdict_table(result)), *extra], "latex")
    return render(shown, "md" if form is Format.md else "table", shutil.get_terminal_size((120, 24)).columns)
