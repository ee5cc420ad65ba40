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
    Methods,
    Plan,
    Protocol,
    ProtocolName,
    Thresholds,
    Where,
    parse_baseline,
    parse_numbers,
    planned,
    protocol_of,
    say_skipped,
    selection_of,
)
from creditscope.cli.say import say

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit
    from creditscope.protocol.present import Section

OPEN = 3  # nothing was walked back, but something is open


class Format(StrEnum):
    """How to print an audit."""

    table = "table"
    json = "json"
    md = "md"
    latex = "latex"


def audit(
    logs: Logs,
    where: Where = None,
    methods: Methods = None,
    protocol: Protocol = ProtocolName.standard,
    baseline: Baseline = None,
    check: Checks = None,
    advisory_check: AdvisoryChecks = None,
    set_: Thresholds = None,
    assume: Assumed = None,
    plan: Plan = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every check of every method, and every run.")
    ] = False,
    timeline: Annotated[bool, typer.Option("--timeline", help="When checks first fired; part of -v.")] = False,
    decisions: Annotated[bool, typer.Option("--decisions", help="What accuracy and Γ alone would have said.")] = False,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Which thresholds change nothing.")] = False,
    fail_on_walkback: Annotated[
        bool, typer.Option("--fail-on-walkback", help="Exit 1 if any claim is walked back, 2 if any file was skipped.")
    ] = False,
    fail_on_incomplete: Annotated[
        bool, typer.Option("--fail-on-incomplete", help="The same, and exit 3 if any claim is incomplete.")
    ] = False,
) -> None:
    """Judge logs: trustworthy, walked back or incomplete.

    Prints a line a method, then what fires or is open, with what would settle it; -v prints the rest. Whatever is
    chosen by --methods is compared with all controls among the LOGS.

    Examples: `creditscope audit runs`; `creditscope audit runs --methods dfa-rms --where epochs=100 -v`;
    `creditscope audit runs --format json --fail-on-walkback`.
    """
    import shutil

    from creditscope.cli.display import say_verdicts
    from creditscope.protocol.audit import audit as judge
    from creditscope.records.load import without_collection

    chosen, assumed = protocol_of(protocol.value, set_, check, advisory_check), parse_numbers(assume, "--assume")
    wanted = selection_of(where, methods)
    with without_collection():
        result = judge(logs, chosen, parse_baseline(baseline), assume=assumed, keep_rows=False, select=wanted)
        if (declared := planned(plan, result.logs)) is not None:
            result = result.against(declared)
        if format_ is Format.json:
            say(_json(result))
        elif format_ is Format.table:
            shown = _sections(result, verbose, timeline, decisions, sensitivity)
            say_verdicts(result, shown, shutil.get_terminal_size((120, 24)).columns)
        else:
            say(_document(result, format_, timeline, decisions, sensitivity))
    say_skipped(result)
    if (fail_on_walkback or fail_on_incomplete) and result.skipped:
        raise typer.Exit(2)
    if (fail_on_walkback or fail_on_incomplete) and result.walked_back:
        raise typer.Exit(1)
    if fail_on_incomplete and result.incomplete:
        raise typer.Exit(OPEN)


def _json(result: "Audit") -> str:
    import io
    import json

    text = io.StringIO()
    # Piece by piece: json.dumps holds every piece until the last, five times the size of the text.
    text.writelines(json.JSONEncoder(indent=2, allow_nan=False).iterencode(result.to_dict()))
    return text.getvalue()


def _sections(result: "Audit", verbose: bool, timeline: bool, decisions: bool, sensitivity: bool) -> "list[Section]":
    from creditscope.protocol.brief import brief_sections
    from creditscope.protocol.present import sections

    if verbose:
        return sections(result, timeline=True, decisions=decisions, sensitivity=sensitivity)
    asked = sections(result, timeline=timeline, decisions=decisions, sensitivity=sensitivity)
    plain = sections(result, timeline=False)
    return [*brief_sections(result), *asked[len(plain) :]]


def _document(result: "Audit", form: Format, timeline: bool, decisions: bool, sensitivity: bool) -> str:
    from creditscope.protocol.present import Section, caption, render, sections, verdict_table

    shown = sections(result, timeline=timeline or form is Format.md, decisions=decisions, sensitivity=sensitivity)
    if form is Format.md:
        return render(shown, "md")
    extra = [section for section in shown[1:] if section.table is not None and (timeline or decisions or sensitivity)]
    return render([Section(caption(result), verdict_table(result)), *extra], "latex")
