"""``creditscope report``: one page that shows an audit, or its tables for an appendix."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.audit import ProtocolName, _baseline, _numbers


def report(
    logs: Annotated[list[Path], typer.Argument(help="Log files or folders, ours or in a published JSON layout.")],
    out: Annotated[
        Path, typer.Option(help="A page that opens offline (.html), or the tables and the reporting form (.md, .tex).")
    ] = Path("report.html"),
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
) -> None:
    """Write one file that shows verdicts, plots, numbers and advice, and how to make it again."""
    import shlex

    from creditscope.records.load import load_logs
    from creditscope.report.page import check_out, write_report

    check_out(out)
    thresholds, assumed = _numbers(set_, "--set"), _numbers(assume, "--assume")
    given = _baseline(baseline)
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
