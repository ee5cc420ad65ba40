"""What training shows in a terminal: the plan, a live bar, and the summary table."""

import shutil
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from creditscope.errors import BadInput
from creditscope.protocol.monitor import Monitor
from creditscope.protocol.presets import Protocol
from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow, RunLog, RunSpec
from creditscope.records.labels import labels_of
from creditscope.records.table import Table

if TYPE_CHECKING:
    from creditscope.engine.loop import OnRow

_DOING = {"train": "training", "measure": "measuring", "probe": "probing"}


class TrainDisplay:
    """A live bar over all optimiser steps: which fleet, which epoch, what is being done."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,  # a log file wants what went wrong, not a bar
        )
        self._task = self._progress.add_task("loading", total=None)
        self._fleets = 0
        self._seen: list[str] = []

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

    def stage(self, members: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """Say what is being done."""
        if members[0].run_id not in self._seen:
            self._seen.append(members[0].run_id)
        number = self._seen.index(members[0].run_id) + 1
        where = f"fleet {number}/{self._fleets}: {len(members)} runs, epoch {epoch}/{members[0].epochs}"
        self._progress.update(self._task, description=f"{where}, {_DOING[doing]}")

    def watch(self, mode: str, protocol: str | Protocol = "standard") -> "OnRow":
        """Judge every row as it is written; alerts go above the bar.

        Args:
            mode: ``alert`` only speaks; ``stop`` also stops the run.
            protocol: Whose required checks are watched.
        """
        if mode not in ("alert", "stop"):
            raise BadInput(f"--monitor {mode}: wanted alert or stop")
        monitor = Monitor(protocol, mode="stop" if mode == "stop" else "alert", on_problem=self.note)

        def on_row(header: HeaderRow, row: EpochRow | ProbeRow | EndRow) -> str | None:
            alerts = monitor.on_row(header, row)
            for alert in alerts:
                self.note(alert.message)
            return next((alert.message for alert in alerts if alert.stop), None)

        return on_row

    def note(self, line: str) -> None:
        """A line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def step(self, members: Sequence[RunSpec]) -> None:
        """Move the bar."""
        self._progress.advance(self._task)


def _steps(spec: RunSpec) -> int:
    n = spec.data.n_train if spec.data else None
    return (spec.epochs or 0) * ((n or 0) // (spec.batch or 1))


def plan_text(fleets: Sequence[Sequence[RunSpec]]) -> str:
    """Which runs would be trained, in which fleets.

    Args:
        fleets: The fleets.
    """
    rows = []
    for number, fleet in enumerate(fleets, 1):
        spec = fleet[0]
        methods = ", ".join(dict.fromkeys(member.method for member in fleet))
        bare = ", no terminal LN" if spec.terminal_ln is False else ""
        model = f"{spec.model} d={spec.width} L={spec.depth}{bare}"
        data = spec.data.name if spec.data else "?"
        rows.append((str(number), model, data, str(spec.epochs), str(_steps(spec)), str(len(fleet)), methods))
    table = Table(("fleet", "model", "data", "epochs", "steps", "runs", "methods"), tuple(rows))
    return f"{fit(table)}\n{sum(map(len, fleets))} runs in {len(fleets)} fleet(s)"


def summary_text(logs: Sequence[RunLog]) -> str:
    """One line a method: what the usual pair says, and what lies beneath.

    Args:
        logs: The finished logs.
    """
    rows = []
    cells = _cells(logs)
    for cell, label in zip(cells, labels_of([cell[0].spec for cell in cells]), strict=True):
        last = [log.last for log in cell if log.last is not None]
        rows.append(
            (
                label,
                str(len(cell)),
                _mean([row.test_accuracy for row in last], ".3f"),
                _mean([row.gamma.published for row in last if row.gamma], "+.3f"),
                _mean([row.gamma.deep for row in last if row.gamma], "+.3f"),
                _mean([max(_known(row.growth)) for row in last if _known(row.growth)], ".3g"),
                _mean([row.hidden.median[-1] for row in last if row.hidden], ".2g"),
                _mean([row.reference.median[-1] for row in last if row.reference], ".2g"),
                ", ".join(sorted({log.end.status if log.end else "unfinished" for log in cell})),
            )
        )
    columns = ("method", "seeds", "accuracy", "Γ", "deep cos", "growth", "‖h_L‖", "‖g_L‖", "status")
    note = "means over seeds at the last epoch; Γ in the published index; ‖g_L‖ per sample"
    return f"{fit(Table(columns, tuple(rows)))}\n{note}"


def fit(table: Table) -> str:
    """A table as text for this terminal; unwrapped when piped into another program."""
    return table.to_text(shutil.get_terminal_size().columns if sys.stdout.isatty() else None)


def _cells(logs: Sequence[RunLog]) -> list[list[RunLog]]:
    cells: dict[str, list[RunLog]] = {}
    for log in logs:
        cells.setdefault(log.spec.cell_key, []).append(log)
    return list(cells.values())


def _known(values: Sequence[float | None] | None) -> list[float]:
    return [v for v in values or () if v is not None]


def _mean(values: Sequence[float | None], form: str) -> str:
    known = _known(values)
    return format(sum(known) / len(known), form) if known else "–"
