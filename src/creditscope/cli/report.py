"""``creditscope report``: one page that shows an audit, or its tables for an appendix."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.options import (
    AdvisoryChecks,
    Assumed,
    Baseline,
    Checks,
    Form,
    Logs,
    Methods,
    Plan,
    Protocol,
    ProtocolName,
    TextOrJson,
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


def report(
    logs: Logs,
    out: Annotated[
        Path, typer.Option(help="A page that opens offline (.html), or the tables and the reporting form (.md, .tex).")
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Of the page; default: how many claims stand.")] = None,
    where: Where = None,
    methods: Methods = None,
    protocol: Protocol = ProtocolName.standard,
    baseline: Baseline = None,
    check: Checks = None,
    advisory_check: AdvisoryChecks = None,
    set_: Thresholds = None,
    assume: Assumed = None,
    plan: Plan = None,
    format_: Form = TextOrJson.text,
) -> None:
    """Write one HTML page with verdicts, plots and evidence.

    It opens offline, asks nothing of any server, and says how to make it again.

    Example: `creditscope report runs --out report.html --title "What credit reaches"`.
    """
    import json
    import shlex

    from creditscope.protocol.audit import audit
    from creditscope.records.load import log_files
    from creditscope.report.many import MANY_FILES, most_telling, with_rows
    from creditscope.report.page import check_out, write_report

    check_out(out)
    chosen, assumed = protocol_of(protocol.value, set_, check, advisory_check), parse_numbers(assume, "--assume")
    words = ["creditscope", "report", *map(str, logs), "--out", str(out), "--protocol", protocol.value]
    declaration = None if plan is None else str(plan)
    single = {"--title": title, "--methods": methods, "--baseline": baseline, "--plan": declaration}
    words += [word for option, text in single.items() if text is not None for word in (option, text)]
    repeated = {
        "--where": where,
        "--check": check,
        "--advisory-check": advisory_check,
        "--set": set_,
        "--assume": assume,
    }
    words += [word for option, texts in repeated.items() for text in texts or () for word in (option, text)]
    given, wanted = parse_baseline(baseline), selection_of(where, methods)
    many = sum(1 for path in logs for _ in log_files(path)) > MANY_FILES
    result = audit(logs, chosen, given, assume=assumed, keep_rows=not many, select=wanted)
    if many and out.suffix == ".html":
        result = with_rows(result, logs, most_telling(result).logs)
    if (declared := planned(plan, result.logs)) is not None:
        result = result.against(declared)
    write_report(result, out, command=shlex.join(words), title=title)
    say_skipped(result)
    size = out.stat().st_size
    if format_ is TextOrJson.json:
        kinds = {name: len(cells) for name, cells in result.by_kind.items()}
        say(json.dumps({"out": str(out), "bytes": size, "verdicts": kinds}, indent=2))
    else:
        say(f"wrote {out} ({size / 1e6:.2f} MB)")
