"""``creditscope ls``: which runs a folder holds."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.say import say


def ls(
    logs: Annotated[list[Path] | None, typer.Argument(help="Log files or folders; default: runs.")] = None,
) -> None:
    """List runs: method, seed, data, epochs done, accuracy, how each ended. Unreadable files are named on stderr."""
    from creditscope.cli.display import fit
    from creditscope.errors import BadInput
    from creditscope.quantities.per_epoch import ACCURACY
    from creditscope.records.labels import labels_of
    from creditscope.records.load import load_logs, one_line
    from creditscope.records.table import Table

    # Of each log only what a line shows: thousands then fit.
    loaded = load_logs(logs or [Path("runs")], one_line)
    for skipped in loaded.skipped:
        say(f"skipped {skipped.file}: {skipped.why}", err=True)
    if not loaded.logs:
        raise BadInput("no run log found; name a folder that holds some, or train: creditscope train --preset demo")
    specs = {log.spec.cell_key: log.spec for log in loaded.logs}
    labels = dict(zip(specs, labels_of(list(specs.values())), strict=True))
    rows = []
    for log in loaded.logs:
        spec, last, accuracy = log.spec, log.last, ACCURACY.last(log)
        rows.append(
            (
                labels[spec.cell_key],
                "–" if spec.seed is None else str(spec.seed),
                spec.data.name if spec.data else "–",
                f"{last.epoch if last else 0}/{'?' if spec.epochs is None else spec.epochs}",
                "–" if accuracy is None else f"{accuracy:.3f}",
                log.end.status if log.end else "unfinished",
                log.name,
            )
        )
    say(fit(Table(("method", "seed", "data", "epoch", "accuracy", "status", "file"), tuple(rows))))
