"""``creditscope report``: one page that shows an audit, or its tables for an appendix."""

from pathlib import Path
from typing import Annotated

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


def report(
    logs: Logs,
    out: Annotated[
        Path, typer.Option(help="A page that opens offline (.html), or the tables and the reporting form (.md, .tex).")
    ] = Path("report.html"),
    protocol: Protocol = ProtocolName.standard,
    baseline: Baseline = None,
    check: Checks = None,
    advisory_check: AdvisoryChecks = None,
    set_: Thresholds = None,
    assume: Assumed = None,
    plan: Plan = None,
) -> None:
    """Write one file that shows verdicts, plots, numbers and advice, and how to make it again."""
    import shlex

    from creditscope.protocol.audit import Audit, audit
    from creditscope.records.load import load_logs, log_files
    from creditscope.report.many import MANY_FILES, most_telling, with_rows
    from creditscope.report.page import check_out, write_report

    check_out(out)
    chosen, assumed = protocol_of(protocol.value, set_, check, advisory_check), parse_numbers(assume, "--assume")
    given = parse_baseline(baseline)
    many = sum(1 for path in logs for _ in log_files(path)) > MANY_FILES
    loaded = audit(logs, chosen, given, assume=assumed, keep_rows=False) if many else load_logs(logs)
    words = ["creditscope", "report", *map(str, logs), "--out", str(out), "--protocol", protocol.value]
    words += ["--baseline", baseline] if baseline is not None else []
    words += ["--plan", str(plan)] if plan is not None else []
    repeated = {"--check": check, "--advisory-check": advisory_check, "--set": set_, "--assume": assume}
    words += [word for option, texts in repeated.items() for text in texts or () for word in (option, text)]
    declared = planned(plan, loaded.logs)
    if isinstance(loaded, Audit) and out.suffix == ".html":
        loaded = with_rows(loaded, logs, most_telling(loaded).logs)
    against = load_logs(given) if isinstance(given, Path) else given
    write_report(loaded, out, chosen, against, assume=assumed, command=shlex.join(words), plan=declared)
    for skipped in loaded.skipped:
        say(f"skipped {skipped.file}: {skipped.why}", err=True)
    say(f"wrote {out} ({out.stat().st_size / 1e6:.2f} MB)")
