"""Fleets trained in this process: one after another, or in turns."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from creditscope.data.dataset import Dataset
from creditscope.engine.cuda_streams import Ready, at_once
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import FleetLoop, OnRow, Progress
from creditscope.engine.start import Factory
from creditscope.errors import BadInput
from creditscope.execution.choose import best_fleet
from creditscope.execution.repair import repair
from creditscope.records import HeaderRow, RunLog, RunSpec

# A fleet a turn at a time; yields what must come true before the next.
FleetTurns = Generator[Ready, None, None]
# How often fleets on a GPU are asked whether they are done with their steps.
POLL_SECONDS = 1e-3


@dataclass(frozen=True)
class TrainContext:
    """Where and with what fleets are trained.

    Args:
        folder: Where logs and checkpoints lie.
        load: The data set of a run.
        factory: Builds a run's model.
        device: Where the fleets live.
        on_row: Hears every row; a text it returns stops that run.
        progress: Hears what is going on.
        note: Hears lines that a user should read.
        resume: Whether fleets may have begun before.
    """

    folder: Path
    load: Callable[[RunSpec], Dataset]
    factory: Factory
    device: torch.device
    on_row: OnRow
    progress: Progress
    note: Callable[[str], None]
    resume: bool

    def train(self, fleets: Sequence[Sequence[RunSpec]]) -> None:
        """Train every fleet to its end, one after another.

        Args:
            fleets: Their runs.
        """
        for members in fleets:
            take_turns([self.turns_of(members)])

    def turns_of(self, members: Sequence[RunSpec]) -> FleetTurns:
        """A fleet from its plan to its end.

        Args:
            members: Its runs.
        """
        with self._threads(members):
            fleet = self._fleet(members)
            loop = FleetLoop(fleet, self.folder, self.on_row, self.progress)
            turns = loop.turns(self.resume)
            try:
                while True:
                    with fleet.streams.turn():
                        ready = next(turns, None)
                    if ready is None:
                        yield loop.saved
                        return
                    yield ready
            finally:
                turns.close()  # saves where they stand
                loop.written()

    def _fleet(self, members: Sequence[RunSpec]) -> Fleet:
        for line in repair(self.folder, members) if self.resume else ():
            self.note(line)
        begun = self.begun(members)
        if begun is None:
            return best_fleet(partial(self.build, members), self.note)
        fleet = self.build(members, "fused" in (begun.path or ""))
        _refuse_other_path(fleet, begun)
        return fleet

    def build(self, members: Sequence[RunSpec], fused: bool = False, traced: bool = True) -> Fleet:
        """A fleet at initialisation.

        Args:
            members: Its runs.
            fused: Whether it is compiled.
            traced: Whether it is traced.
        """
        return Fleet(members, self.load(members[0]), self.factory, self.device, fused, traced)

    def deal(self, members: Sequence[RunSpec], parts: int) -> list[Sequence[RunSpec]]:
        """Cut a fleet into parts of like work, a run to each in turn; one that was begun keeps its company.

        Args:
            members: Its runs.
            parts: How many parts.
        """
        if self.begun(members) is not None:
            return [members]
        return [members[part::parts] for part in range(min(parts, len(members)))]

    def begun(self, members: Sequence[RunSpec]) -> HeaderRow | None:
        """The header of a fleet that was begun before: a bitwise resume needs its thread count and its path.

        Args:
            members: Its runs.
        """
        path = self.folder / f"{members[0].run_id}.jsonl"
        return RunLog.read(path).header if path.exists() else None

    @contextmanager
    def _threads(self, members: Sequence[RunSpec]) -> Iterator[None]:
        begun = self.begun(members) if self.device.type == "cpu" else None
        before = torch.get_num_threads()
        torch.set_num_threads((begun and begun.threads) or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def take_turns(fleets: Sequence[FleetTurns]) -> None:
    """Let fleets live to their ends, whoever can go on; what goes wrong with one ends all, and each saves what it has.

    Args:
        fleets: Theirs.
    """
    with ExitStack() as stack:
        waiting: list[tuple[Ready, FleetTurns]] = [
            (at_once, stack.enter_context(closing(turns_of))) for turns_of in fleets
        ]
        while waiting:
            _, turns_of = waiting.pop(_next_turn([ready for ready, _ in waiting]))
            ready = next(turns_of, None)
            if ready is not None:
                waiting.append((ready, turns_of))


def _next_turn(waiting: Sequence[Ready]) -> int:
    """Whose turn it is: the first that can go on. Small fleets so go on while a large one keeps the GPU busy."""
    while True:
        for at, ready in enumerate(waiting):
            if ready():
                return at
        time.sleep(POLL_SECONDS)


def _refuse_other_path(fleet: Fleet, begun: HeaderRow) -> None:
    if begun.path != fleet.path:
        device = begun.provenance.get("device", "another device")
        raise BadInput(
            f"{fleet.spec.run_id} was begun on {device} and its log says so; resume it with --device {device}, or "
            f"choose another --out"
        )
