"""``creditscope report``: one page that shows an audit, or its tables for an appendix."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.options import (
    Assumed,
    Baseline,
    Logs,
    Protocol,
    ProtocolName,
    Thresholds,
    parse_baseline,
    parse_numbers,
)


def report(
    logs: Logs,
    out: Annotated[
        Path, typer.Option(help="A page that opens offline (.html), or the tables and the reporting form (.md, .tex).")
    ] = Path("report.html"),
    protocol: Protocol = ProtocolName.standard,
    baseline: Baseline = None,
    set_: Thresholds = None,
    assume: Assumed = None,
) -> None:
    """Write one file that shows verdicts, plots, numbers and advice, and how to make it again."""
    import shlex

    from creditscope.records.load import load_logs
    from creditscope.report.page import check_out, write_report

    check_out(out)
    thresholds, assumed = parse_numbers(set_, "--set"), parse_numbers(assume, "--assume")
    given = parse_baseline(baseline)
    loaded = load_logs(logs)
    against = load_logs(given) if isinstance(given, Path) else given
    words = ["creditscope", "report", *map(str, logs), "--out", str(out), "--protocol", protocol.value]
    words += ["--baseline", baseline] if baseline is not None else []
    words += [word for text in set_ or () for word in ("--set", text)]
    words += [word for text in assume or () for word in ("--assume", text)]
    write_report(loaded, out, protocol.value, against, thresholds, assumed, shlex.join(words))
    for skipped in loaded.skipped:
        typer.echo(f"skipped {skipped.file}: {skipped.why}", err=True)
    typer.echo(f"wrote {out} ({out.stat().st_size / 1e6:.2f} MB)")
