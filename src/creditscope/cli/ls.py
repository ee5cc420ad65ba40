"""``creditscope ls``: which runs a folder holds."""

from pathlib import Path
from typing import Annotated

import typer


def ls(
    logs: Annotated[list[Path] | None, typer.Argument(help="Log files or folders; default: runs.")] = None,
) -> None:
    """List runs: method, seed, data, epochs done, accuracy, how each ended. Unreadable files are named on stderr."""
    from rich.console import Console
    from rich.table import Table

    from creditscope.errors import BadInput
    from creditscope.records.labels import labels_of
    from creditscope.records.load import load_logs

    loaded = load_logs(logs or [Path("runs")])
    for skipped in loaded.skipped:
        typer.echo(f"skipped {skipped.file}: {skipped.why}", err=True)
    if not loaded.logs:
        raise BadInput("no run log found; name a folder that holds some, or train: creditscope train --preset demo")
    table = Table("method", "seed", "model", "data", "epoch", "accuracy", "status", "file", box=None)
    specs = {log.spec.cell_key: log.spec for log in loaded.logs}
    labels = dict(zip(specs, labels_of(list(specs.values())), strict=True))
    for log in loaded.logs:
        spec, last = log.spec, log.last
        accuracy = last.test_accuracy if last else None
        table.add_row(
            labels[spec.cell_key],
            str(spec.seed),
            f"{spec.model} d={spec.width} L={spec.depth}",
            spec.data.name if spec.data else "?",
            f"{last.epoch if last else '–'}/{spec.epochs if spec.epochs is not None else '?'}",
            f"{accuracy:.3f}" if accuracy is not None else "–",
            log.end.status if log.end else "unfinished",
            log.name,
        )
    # Piped into another program there is no terminal to wrap for.
    console = Console()
    console.print(table, soft_wrap=not console.is_terminal)
