"""What training shows in a terminal: the plan, a live bar, and the summary table."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from creditscope.records import RunLog, RunSpec
from creditscope.records.labels import labels_of

if TYPE_CHECKING:
    from creditscope.engine.fleet import Fleet

_DOING = {"train": "training", "measure": "measuring", "probe": "probing"}


class TrainDisplay:
    """A live bar over all optimiser steps: which fleet, which epoch, what is being done."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("loading", total=None)
        self._fleets = 0
        self._seen: list[int] = []

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def plan(self, fleets: Sequence[Sequence[RunSpec]], total_runs: int) -> None:
        """Set the bar's length."""
        self._fleets = len(fleets)
        steps = sum(_steps(fleet[0]) for fleet in fleets)
        runs = sum(len(fleet) for fleet in fleets)
        text = f"{runs} of {total_runs} runs in {self._fleets} fleet(s)" if runs else "nothing left to train"
        self._progress.update(self._task, total=steps, description=text)

    def stage(self, fleet: "Fleet", epoch: int, doing: str) -> None:
        """Say what is being done."""
        if id(fleet) not in self._seen:
            self._seen.append(id(fleet))
        where = f"fleet {len(self._seen)}/{self._fleets}: {len(fleet.specs)} runs, epoch {epoch}/{fleet.spec.epochs}"
        self._progress.update(self._task, description=f"{where}, {_DOING[doing]}")

    def step(self, fleet: "Fleet") -> None:
        """Move the bar."""
        self._progress.advance(self._task)


def _steps(spec: RunSpec) -> int:
    n = spec.data.n_train if spec.data else None
    return (spec.epochs or 0) * ((n or 0) // (spec.batch or 1))


def print_plan(fleets: Sequence[Sequence[RunSpec]], runs: int) -> None:
    """Print which runs would be trained, in which fleets.

    Args:
        fleets: The fleets.
        runs: Number of runs.
    """
    table = Table("fleet", "model", "data", "epochs", "steps", "runs", "methods", box=None)
    for number, fleet in enumerate(fleets, 1):
        spec = fleet[0]
        methods = ", ".join(dict.fromkeys(member.method for member in fleet))
        model = f"{spec.model} d={spec.width} L={spec.depth}" + ("" if spec.terminal_ln else ", no terminal LN")
        data = spec.data.name if spec.data else "?"
        table.add_row(str(number), model, data, str(spec.epochs), str(_steps(spec)), str(len(fleet)), methods)
    console = Console()
    console.print(table)
    console.print(f"{runs} runs in {len(fleets)} fleet(s); nothing was trained (--dry-run)")


def print_summary(logs: Sequence[RunLog], out: Path) -> None:
    """Print one line a method: what the usual pair says, and what lies beneath.

    Args:
        logs: The finished logs.
        out: Where they lie.
    """
    table = Table(
        "method", "seeds", "accuracy", "Γ published", "deep cosine", "max growth", "‖h_L‖", "‖g_L‖", "status", box=None
    )
    cells = _cells(logs)
    for cell, label in zip(cells, labels_of([cell[0].spec for cell in cells]), strict=True):
        rows = [log.last for log in cell if log.last is not None]
        gammas = [row.gamma.published for row in rows if row.gamma]
        table.add_row(
            label,
            str(len(cell)),
            _spread([row.test_accuracy for row in rows], ".3f"),
            _spread(gammas, "+.3f"),
            _spread([row.gamma.deep for row in rows if row.gamma], "+.3f"),
            _spread([max(_known(row.growth)) for row in rows if _known(row.growth)], ".3g"),
            _spread([row.hidden.median[-1] for row in rows if row.hidden], ".2g"),
            _spread([row.reference.median[-1] for row in rows if row.reference], ".2g"),
            ", ".join(sorted({log.end.status if log.end else "unfinished" for log in cell})),
        )
    console = Console()
    console.print(table)
    console.print(f"{len(logs)} logs in {out}; mean over seeds; ‖g_L‖ per sample, sum-reduced", highlight=False)


def _cells(logs: Sequence[RunLog]) -> list[list[RunLog]]:
    cells: dict[str, list[RunLog]] = {}
    for log in logs:
        cells.setdefault(log.spec.cell_key, []).append(log)
    return list(cells.values())


def _known(values: Sequence[float | None] | None) -> list[float]:
    return [v for v in values or () if v is not None]


def _spread(values: Sequence[float | None], form: str) -> str:
    known = _known(values)
    return format(sum(known) / len(known), form) if known else "–"
