"""``creditscope ls``: which runs a folder holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from creditscope.cli.options import Form, Methods, TextOrJson, Where, read_logs
from creditscope.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from creditscope.records import RunLog


def ls(
    logs: Annotated[list[Path] | None, typer.Argument(help="Log files or folders; default: runs.")] = None,
    where: Where = None,
    methods: Methods = None,
    format_: Form = TextOrJson.text,
) -> None:
    """List runs: method, seed, epochs, accuracy, how each ended.

    Unreadable files are named on stderr.
    """
    import json

    from creditscope.errors import BadInput
    from creditscope.records.load import one_line

    # Of each log only what a line shows: thousands then fit.
    loaded = read_logs(logs or [Path("runs")], where, methods, one_line)
    if not loaded.logs:
        raise BadInput("no run log found; name a folder that holds some, or train: creditscope train --preset demo")
    rows = listing(loaded.logs)
    if format_ is TextOrJson.json:
        skipped = [{"file": skipped.file, "why": skipped.why} for skipped in loaded.skipped]
        say(json.dumps({"runs": rows, "skipped": skipped}, indent=2, allow_nan=False))
    else:
        say(listing_text(rows))


def listing(logs: "Sequence[RunLog]") -> list[dict[str, Any]]:
    """One entry a run, for JSON."""
    from creditscope.quantities.per_epoch import ACCURACY
    from creditscope.records.labels import labels_of

    specs = {log.spec.cell_key: log.spec for log in logs}
    labels = dict(zip(specs, labels_of(list(specs.values())), strict=True))
    return [
        {
            "method": labels[log.spec.cell_key],
            "seed": log.spec.seed,
            "data": log.spec.data.name if log.spec.data else None,
            "epoch": log.last.epoch if log.last else 0,
            "epochs": log.spec.epochs,
            "accuracy": ACCURACY.last(log),
            "status": log.end.status if log.end else "unfinished",
            "file": log.name,
        }
        for log in logs
    ]


def listing_text(rows: "Sequence[dict[str, Any]]") -> str:
    """One line a run; where the terminal is too narrow its file stands on a line of its own."""
    from creditscope.cli.display import fit
    from creditscope.records.table import Table

    cells = tuple(
        (
            row["method"],
            "–" if row["seed"] is None else str(row["seed"]),
            row["data"] or "–",
            f"{row['epoch']}/{'?' if row['epochs'] is None else row['epochs']}",
            "–" if row["accuracy"] is None else f"{row['accuracy']:.3f}",
            row["status"],
            row["file"],
        )
        for row in rows
    )
    return fit(Table(("method", "seed", "data", "epoch", "accuracy", "status", "file"), cells, files="file"))
