"""What a sweep shows: a bar over its runs in a terminal, one line a fleet in a log file."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from creditscope.records import RunSpec

if TYPE_CHECKING:
    from creditscope.execution.job import FleetJob, Outcome
    from creditscope.execution.sweep import SweepPlan


class SweepDisplay:
    """Progress of a whole sweep.

    Args:
        plan: What is to be done.
    """

    def __init__(self, plan: "SweepPlan") -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._fleets, self._ended = len(plan.jobs), 0
        self._task = self._progress.add_task("starting", total=len(plan.runs), completed=len(plan.done))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say_slots(self, slots: int) -> None:
        """Say when part of a cluster would stand idle.

        Args:
            slots: Fleets that the cluster holds at once.
        """
        if slots > self._fleets:
            self.note(f"room for {slots} fleets at once, and there are {self._fleets}; --fleet-size makes more of them")

    def on_fleet(self, job: "FleetJob", outcome: "Outcome") -> None:
        """A fleet ended."""
        for note in outcome.notes:
            self.note(note)
        if outcome.out_of_memory:
            self._fleets += 1
            self.note(
                f"fleet {job.number} of {len(job.specs)} runs did not fit into the memory; it is halved if it can be"
            )
            return
        self._ended += 1
        if outcome.error is not None:
            self.note(f"fleet {job.number} failed: {outcome.error}")
            return
        self._progress.advance(self._task, len(job.specs))
        text = f"{self._ended} of {self._fleets} fleets ended"
        self._progress.update(self._task, description=text)
        if not self._console.is_terminal:
            self.note(f"{text}: fleet {job.number}, {len(job.specs)} runs finished")

    def plan(self, fleets: Sequence[Sequence[RunSpec]], total_runs: int) -> None:
        """One fleet of the sweep is about to be trained; the bar counts the whole sweep."""

    def stage(self, members: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """Say how far the fleet is."""
        text = f"fleet {self._ended + 1}/{self._fleets}: epoch {epoch}/{members[0].epochs}"
        self._progress.update(self._task, description=text)

    def step(self, members: Sequence[RunSpec]) -> None:
        """One optimiser step; the bar counts runs."""

    def note(self, line: str) -> None:
        """A line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
