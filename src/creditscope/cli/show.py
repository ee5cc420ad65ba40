"""``creditscope show``: one run, in full."""

from pathlib import Path
from typing import Annotated

import typer


def show(
    log: Annotated[Path, typer.Argument(help="One log file.")],
    epochs: Annotated[int, typer.Option(help="How many epochs to show at most, spread evenly.")] = 12,
) -> None:
    """Show one run: what it is, where it came from, and its states over the epochs."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from creditscope.errors import BadInput
    from creditscope.records.load import load_logs

    if epochs < 1:
        raise BadInput(f"--epochs {epochs}: wanted at least 1")
    loaded = load_logs([log])
    for skipped in loaded.skipped:
        typer.echo(f"skipped {skipped.file}: {skipped.why}", err=True)
    if not loaded.logs:
        raise BadInput(f"{log.name}: no run log in it")
    console = Console()
    for run in loaded.logs:
        spec = run.spec
        console.print(f"[bold]{escape(spec.method)}[/bold] seed {spec.seed}  ({escape(run.name)})", highlight=False)
        facts = Table("field", "value", box=None, show_header=False)
        for key, value in spec.model_dump(mode="json").items():
            if value is not None:
                facts.add_row(key, escape(str(value)))
        for key, value in run.header.provenance.items():
            facts.add_row(key, escape(value))
        console.print(facts)
        table = Table("epoch", "accuracy", "test loss", "‖h_l‖", "‖g_l‖", "growth", "cosine where it acts", box=None)
        step = max(1, -(-len(run.epochs) // epochs))
        for row in [*run.epochs[:-1:step], *run.epochs[-1:]]:
            table.add_row(
                str(row.epoch),
                _number(row.test_accuracy, ".3f"),
                _number(row.test_loss, ".3f"),
                _numbers(row.hidden.median if row.hidden else None, ".2g"),
                _numbers(row.reference.median if row.reference else None, ".1e"),
                _numbers(row.growth, ".3g"),
                _numbers(row.cosine.mean if row.cosine else None, "+.2f"),
            )
        console.print(table)
        status = run.end.status if run.end else "unfinished"
        reason = f": {run.end.reason}" if run.end and run.end.reason else ""
        console.print(f"{status}{escape(reason)}; {len(run.probes)} dear probes", highlight=False)
        for problem in run.problems:
            typer.echo(f"{run.name}: {problem}", err=True)


def _number(value: float | None, form: str) -> str:
    return format(value, form) if value is not None else "–"


def _numbers(values: list[float | None] | None, form: str) -> str:
    return " ".join(_number(value, form) for value in values) if values else "–"
