"""Fleets trained in this process: one after another on a CPU, side by side on a card."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from creditscope.data.dataset import Dataset
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import FleetLoop, OnRow, Progress
from creditscope.engine.start import Factory, default_model
from creditscope.engine.streams import Ready, at_once
from creditscope.errors import BadInput
from creditscope.models import MODELS
from creditscope.records import HeaderRow, RunLog, RunSpec
from creditscope.sweeps.ahead import Ahead
from creditscope.sweeps.choose import best_fleet
from creditscope.sweeps.memory import cut, fleet_bytes, free_bytes
from creditscope.sweeps.mend import mend

# How often fleets on a card are asked whether they are done with their steps.
POLL_SECONDS = 1e-3


@dataclass(frozen=True)
class Workshop:
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
        """Train every fleet to its end.

        Args:
            fleets: Their runs.
        """
        parts = [part for members in fleets for part in self._fitting(members)]
        # The largest first: where it is to be compiled, others train meanwhile.
        for wave in self._waves(sorted(parts, key=lambda part: -(self._bytes(part) or 0))):
            self._take_turns(wave)

    def _fitting(self, members: Sequence[RunSpec]) -> Sequence[Sequence[RunSpec]]:
        """A fleet in as few parts as fit on a card; one that was begun keeps its company."""
        if self._bytes(members) is None or self.begun(members) is not None:
            return [members]
        return cut(members, free_bytes(self.device), None)

    def _waves(self, fleets: Sequence[Sequence[RunSpec]]) -> Iterator[list[Sequence[RunSpec]]]:
        """Fleets that share the device: one at a time on a CPU, as many as its memory holds on a card."""
        wave: list[Sequence[RunSpec]] = []
        taken = 0
        for members in fleets:
            size = self._bytes(members)
            if wave and (size is None or taken + size > free_bytes(self.device)):
                yield wave
                wave, taken = [], 0
            wave.append(members)
            taken += size or 0
        if wave:
            yield wave

    def _bytes(self, members: Sequence[RunSpec]) -> int | None:
        """What a fleet of our own models takes on a card; None where it is not known or does not matter."""
        known = self.device.type == "cuda" and all(spec.model in MODELS for spec in members)
        return fleet_bytes(members) if known else None

    def _take_turns(self, wave: Sequence[Sequence[RunSpec]]) -> None:
        with ExitStack() as stack:
            waiting: list[tuple[Ready, Generator[Ready, None, None]]] = []
            for members in wave:
                stack.enter_context(self._threads(members))
                waiting.append((at_once, stack.enter_context(closing(self._life(members)))))
            while waiting:
                _, life = waiting.pop(_next_turn([ready for ready, _ in waiting]))
                ready = next(life, None)
                if ready is not None:
                    waiting.append((ready, life))

    def _life(self, members: Sequence[RunSpec]) -> Generator[Ready, None, None]:
        """A fleet from its plan to its end, a turn at a time; yields what must come true before its next."""
        fleet = yield from self._fleet(members)
        loop = FleetLoop(fleet, self.folder, self.on_row, self.progress)
        turns = loop.turns(self.resume)
        try:
            while True:
                with fleet.streams.turn():
                    ready = next(turns, None)
                if ready is None:
                    return
                yield ready
        finally:
            turns.close()  # saves where they stand
            loop.written()

    def _fleet(self, members: Sequence[RunSpec]) -> Generator[Ready, None, Fleet]:
        for line in mend(self.folder, members) if self.resume else ():
            self.note(line)
        begun = self.begun(members)
        if begun is None:
            others = self.device.type == "cuda" and self.factory is default_model
            ahead = partial(Ahead, device=self.device) if others else None
            return (yield from best_fleet(partial(self.build, members), self.note, ahead))
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
        begun = self.begun(members)
        before = torch.get_num_threads()
        torch.set_num_threads((begun and begun.threads) or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _next_turn(waiting: Sequence[Ready]) -> int:
    """Whose turn it is: the first that can go on. Small fleets so go on while a large one keeps the card busy."""
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
