"""What training shows in a terminal: the plan, a live bar, and the summary table."""

import shutil
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from creditscope.errors import BadInput
from creditscope.protocol.cells import cells_of
from creditscope.protocol.monitor import Monitor
from creditscope.protocol.presets import Protocol
from creditscope.quantities.per_epoch import ACCURACY, GAMMA_DEEP, GAMMA_PUBLISHED, GROWTH_MAX, HIDDEN, REFERENCE
from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow, RunLog, RunSpec
from creditscope.records.table import Table, visible

if TYPE_CHECKING:
    from creditscope.engine.loop import OnRow
    from creditscope.execution.job import Ended
    from creditscope.execution.plan import Plan

_DOING = {"train": "training", "measure": "measuring", "probe": "probing"}


class TrainDisplay:
    """A live bar over all optimiser steps: which fleet, which epoch, what is being done.

    Args:
        on_plan: Hears the plan before anything is trained.
    """

    def __init__(self, on_plan: "Callable[[Plan], None]" = lambda plan: None) -> None:
        self._on_plan = on_plan
        self._console = console = Console(stderr=True)
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
        self._fleets, self._ended, self._counted = 0, 0, 0
        self._seen: list[str] = []

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def plan(self, plan: "Plan") -> None:
        """Set the bar's length."""
        self._on_plan(plan)
        self._fleets = len(plan.jobs)
        steps = sum(_steps(job.specs[0]) for job in plan.jobs)
        runs = sum(len(job.specs) for job in plan.jobs)
        text = f"{runs} of {len(plan.runs)} runs in {self._fleets} fleet(s)" if runs else "nothing left to train"
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
        self._progress.console.print(visible(line, keep=""), markup=False, highlight=False, soft_wrap=True)

    def step(self, members: Sequence[RunSpec]) -> None:
        """Move the bar."""
        self._counted += 1
        self._progress.advance(self._task)

    def ended(self, ended: "Ended") -> None:
        """A fleet ended: say how where there are several, and where no bar shows it."""
        job, outcome = ended
        for note in outcome.notes:
            self.note(note)
        if outcome.out_of_memory:
            halved = not job.begun and len(job.specs) > 1
            self._fleets += halved
            what = "; it is halved" if halved else ""
            self.note(f"fleet {job.number} of {len(job.specs)} runs did not fit into the memory{what}")
            return
        self._ended += 1
        if outcome.error is not None:
            if self._fleets > 1:
                self.note(f"fleet {job.number} failed: {outcome.error.with_flags}")
            return
        if not self._counted:  # its steps were made elsewhere
            self._progress.advance(self._task, _steps(job.specs[0]))
        text = f"{self._ended} of {self._fleets} fleets ended"
        self._progress.update(self._task, description=text)
        if self._fleets > 1 and not self._console.is_terminal:
            self.note(f"{text}: fleet {job.number}, {len(job.specs)} runs finished")


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
        model = f"{spec.model_text} d={spec.width} L={spec.depth}{bare}"
        data = spec.data.name if spec.data else "?"
        rows.append((str(number), model, data, str(spec.epochs), str(_steps(spec)), str(len(fleet)), methods))
    table = Table(("fleet", "model", "data", "epochs", "steps", "runs", "methods"), tuple(rows))
    return f"{fit(table)}\n{sum(map(len, fleets))} runs in {len(fleets)} fleet(s)"


def summary_text(logs: Sequence[RunLog]) -> str:
    """One line a method: what the usual pair says, and what lies beneath.

    Args:
        logs: The finished logs.
    """
    shown = (
        (ACCURACY, ".3f"),
        (GAMMA_PUBLISHED, "+.3f"),
        (GAMMA_DEEP, "+.3f"),
        (GROWTH_MAX, ".3g"),
        (HIDDEN, ".2g"),
        (REFERENCE, ".2g"),
    )
    rows = [
        (
            cell.label,
            str(len(cell.runs)),
            *(_mean([quantity.last(run) for run in cell.runs], form) for quantity, form in shown),
            ", ".join(sorted({run.end.status if run.end else "unfinished" for run in cell.runs})),
        )
        for cell in cells_of(logs)
    ]
    columns = ("method", "seeds", *(quantity.symbol_at("L") for quantity, _ in shown), "status")
    last = REFERENCE.symbol_at("L")
    note = f"means over seeds at the last epoch; Γ in the published index; {last} {REFERENCE.unit}"
    return f"{fit(Table(columns, tuple(rows)))}\n{note}"


def fit(table: Table) -> str:
    """A table as text for this terminal; unwrapped when piped into another program."""
    return table.to_text(shutil.get_terminal_size().columns if sys.stdout.isatty() else None)


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(sum(known) / len(known), form) if known else "–"
