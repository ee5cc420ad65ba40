"""What training shows while it goes on: a live bar with the time that is left, and lines above it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskProgressColumn, TextColumn
from rich.text import Text

from creditscope.cli.display import steps_of
from creditscope.errors import BadInput
from creditscope.probes.schedule import expensive_epochs, is_expensive
from creditscope.protocol.monitor import Monitor
from creditscope.protocol.presets import Protocol
from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow, RunSpec
from creditscope.records.table import visible

if TYPE_CHECKING:
    from creditscope.engine.loop import OnRow
    from creditscope.execution.job import Ended
    from creditscope.execution.plan import Plan

DOING = {"train": "training", "measure": "measuring", "probe": "probing"}
# Until one was timed: how many optimiser steps a measurement and an expensive probe are worth.
_FIRST_GUESS = {"train": 1.0, "measure": 5.0, "probe": 50.0}
_MOVES_EVERY = 0.1  # seconds: thousands of steps a second must not wait for a bar


@dataclass
class FleetWork:
    """What one fleet has to do and has done, in pieces of each kind: steps, measurements and expensive probes.

    Args:
        planned: Pieces of each kind.
        done: Of these.
        doing: What it was last heard to begin; empty at first.
        since: When the piece in hand began.
    """

    planned: dict[str, int]
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DOING, 0))
    doing: str = ""
    since: float = 0.0

    @classmethod
    def of(cls, specs: Sequence[RunSpec]) -> "FleetWork":
        """All the work of a fleet.

        Args:
            specs: Its runs.
        """
        epochs = specs[0].epochs or 0
        probes = sum(is_expensive(e, epochs, expensive_epochs(spec)) for spec in specs for e in range(epochs + 1))
        return cls({"train": steps_of(specs[0]), "measure": epochs + 1, "probe": probes})

    def finish(self) -> None:
        """All of it is done, also what was not heard of."""
        self.done = dict(self.planned)


def fleet_key(specs: Sequence[RunSpec]) -> str:
    """What a fleet is known by; it trains its runs in an order of its own.

    Args:
        specs: Its runs.
    """
    return min(spec.run_id for spec in specs)


class Work:
    """How much of all fleets' work is done, each kind at the price that it turned out to have.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fleets: dict[str, FleetWork] = {}
        self._seconds = dict.fromkeys(DOING, 0.0)
        self._pieces = dict.fromkeys(DOING, 0)
        self._began = clock()

    def plan(self, fleets: Sequence[Sequence[RunSpec]]) -> None:
        """Begin with these fleets."""
        self._fleets = {fleet_key(specs): FleetWork.of(specs) for specs in fleets}
        self._began = self._clock()

    def begin(self, specs: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """A fleet begins a piece of some kind; a fleet that was resumed has done all before it."""
        fleet = self.fleet(specs)
        if not fleet.doing and epoch > 1:
            epochs = specs[0].epochs or 1
            fleet.planned = {kind: max(0, n - n * (epoch - 1) // epochs) for kind, n in fleet.planned.items()}
        if fleet.doing in ("measure", "probe"):
            self._end_piece(fleet, fleet.doing)
        fleet.doing, fleet.since = doing, self._clock()

    def step(self, specs: Sequence[RunSpec]) -> None:
        """A fleet made a step."""
        self._end_piece(self.fleet(specs), "train")

    def _end_piece(self, fleet: FleetWork, kind: str) -> None:
        now = self._clock()
        if fleet.done[kind]:  # the first holds what is done once: tracing, compiling
            self._seconds[kind] += now - fleet.since
            self._pieces[kind] += 1
        fleet.done[kind] += 1
        fleet.since = now

    def fleet(self, specs: Sequence[RunSpec]) -> FleetWork:
        """The fleet of these runs; one that was halved since is new."""
        key = fleet_key(specs)
        if key not in self._fleets:
            self._fleets[key] = FleetWork.of(specs)
        return self._fleets[key]

    def _prices(self) -> dict[str, float]:
        known = {kind: self._seconds[kind] / self._pieces[kind] for kind in DOING if self._pieces[kind]}
        unit = max((price / _FIRST_GUESS[kind] for kind, price in known.items()), default=1.0)
        return {kind: unit * ratio for kind, ratio in _FIRST_GUESS.items()} | known

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1."""
        prices = self._prices()
        pieces = [(fleet.done, fleet.planned) for fleet in self._fleets.values()]
        total = sum(price * planned[kind] for _, planned in pieces for kind, price in prices.items())
        done = sum(price * min(had[kind], planned[kind]) for had, planned in pieces for kind, price in prices.items())
        return done / total if total else 1.0

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._began


class _Times(ProgressColumn):
    """The time that has passed and the time that is left; both go on while nothing is heard."""

    max_refresh = 0.25

    def render(self, task: Task) -> Text:
        elapsed = task.elapsed or 0.0
        left = task.fields.get("left")
        text = clock_text(elapsed)
        if left is not None and not task.finished:
            text += f", {clock_text(max(0.0, left - (elapsed - task.fields['at'])))} left"
        return Text(text)


def clock_text(seconds: float) -> str:
    """Seconds as 0:07, 12:03 or 1:02:03.

    Args:
        seconds: Not negative.
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class TrainDisplay:
    """A live bar over all work: which fleet, which epoch, what is being done, and the time that is left.

    Args:
        on_plan: Hears the plan before anything is trained.
    """

    def __init__(self, on_plan: "Callable[[Plan], None]" = lambda plan: None) -> None:
        self._on_plan = on_plan
        self._console = console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TaskProgressColumn(),
            _Times(),
            console=console,
            refresh_per_second=4,
            disable=not console.is_terminal,  # a log file wants what went wrong, not a bar
        )
        self._task = self._progress.add_task("loading", total=None)
        self._work = Work()
        self._fleets, self._ended = 0, 0
        self._seen: list[str] = []
        self._moved = -_MOVES_EVERY

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def plan(self, plan: "Plan") -> None:
        """Set the bar's length."""
        self._ended, self._seen = 0, []  # a study may train several plans, one after another
        self._on_plan(plan)
        self._fleets = len(plan.jobs)
        self._work.plan([job.specs for job in plan.jobs])
        runs = sum(len(job.specs) for job in plan.jobs)
        text = f"{runs} of {len(plan.runs)} runs in {self._fleets} fleet(s)" if runs else "nothing left to train"
        self._progress.update(self._task, total=1.0)
        self._move(text)

    def stage(self, members: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """Say what is being done."""
        if (key := fleet_key(members)) not in self._seen:
            self._seen.append(key)
        self._work.begin(members, epoch, doing)
        number = self._seen.index(key) + 1
        where = f"fleet {number}/{self._fleets}, epoch {epoch}/{members[0].epochs}"
        work = self._work.fleet(members)
        which = f" {work.done['probe'] + 1}/{work.planned['probe']}" if doing == "probe" else ""
        self._move(f"{where}, {DOING[doing]}{which}")

    def step(self, members: Sequence[RunSpec]) -> None:
        """Move the bar."""
        self._work.step(members)
        if self._work.elapsed - self._moved >= _MOVES_EVERY:
            self._move()

    def _move(self, text: str | None = None) -> None:
        self._moved = self._work.elapsed
        share, task = self._work.share, self._progress.tasks[self._task]
        elapsed = task.elapsed or 0.0
        # The first per cents hold the start of everything, which tells nothing of the rest.
        left = self._work.elapsed * (1 - share) / share if share > 0.01 else None
        said = task.description if text is None else text
        # A price that rises makes the rest longer; the bar does not go back for it.
        self._progress.update(self._task, completed=max(share, task.completed), description=said, left=left, at=elapsed)

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
        self._work.fleet(job.specs).finish()  # also where its steps were made elsewhere
        text = f"{self._ended} of {self._fleets} fleets ended"
        self._move(text)
        if self._fleets > 1 and not self._console.is_terminal:
            self.note(f"{text}: fleet {job.number}, {len(job.specs)} runs finished")
