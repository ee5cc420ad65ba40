"""Fleets trained in this process: one after another, or in turns on a GPU.

On a GPU as many share it as its memory holds: they take turns, and the kernels of several fill it together.
"""

import gc
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Self

import torch

from creditscope.engine.cuda_streams import Ready, at_once
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import FleetLoop
from creditscope.engine.memory import free_bytes
from creditscope.errors import BadInput, argument
from creditscope.execution.calibrate import TimedFleet, best_fleet
from creditscope.execution.context import TrainContext
from creditscope.execution.folder import begun_header
from creditscope.execution.job import Ended, FleetJob, Outcome, outcome_of
from creditscope.execution.plan import known_bytes
from creditscope.execution.repair import repair

# A fleet a turn at a time; yields what must come true before the next.
FleetTurns = Generator[Ready, None, None]
# How often fleets on a GPU are asked whether they are done with their steps.
POLL_SECONDS = 1e-3
# Fleets from this size on are begun only after the parts of earlier ones are collected.
_LARGE = 64 * 2**20


class InProcess:
    """Trains fleets in this process, their logs growing in the output folder.

    Args:
        context: Where and with what.
        timed: A fleet that was built and timed before.
    """

    keeps_files = True

    def __init__(self, context: TrainContext, timed: TimedFleet | None = None) -> None:
        self._context = context
        self._timed = timed
        self._taken: list[tuple[Ready, FleetTurns, FleetJob]] = []
        self._bytes = 0
        self._full = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with ExitStack() as stack:  # each saves where it stands, whatever goes wrong with the others
            for _, turns, _ in self._taken:
                stack.callback(turns.close)

    def takes(self, job: FleetJob) -> bool:
        """Whether it takes a job now: the first always, on a GPU others until its memory is full."""
        if not self._taken:
            return True
        size = known_bytes(job.specs, self._context.device.type, self._context.given)
        if self._full or self._context.device.type == "cpu" or size is None:
            return False
        return self._bytes + size <= free_bytes(self._context.device)

    def submit(self, job: FleetJob) -> None:
        """Take a job; nothing is built before ``next_end``."""
        self._bytes += known_bytes(job.specs, self._context.device.type, self._context.given) or 0
        timed = None
        if self._timed is not None and {*self._timed.fleet.specs} == {*job.specs}:
            timed, self._timed = self._timed, None
        self._taken.append((at_once, fleet_turns(job, self._context, timed), job))

    def next_end(self) -> Ended:
        """Train, in turns, until a fleet ends."""
        self._full = True
        while True:
            _, turns, job = self._taken.pop(_next_turn([ready for ready, _, _ in self._taken]))
            try:
                ready = next(turns, None)
                outcome = Outcome()
            except BaseException as error:  # without memory, saving what there is can fail in any way, a panic included
                ready, outcome = None, outcome_of(error)
            if ready is not None:
                self._taken.append((ready, turns, job))
                continue
            if not self._taken:
                self._full, self._bytes = False, 0
            return Ended(job, outcome)


def fleet_turns(job: FleetJob, context: TrainContext, timed: TimedFleet | None = None) -> FleetTurns:
    """A fleet from its plan to its end.

    Args:
        job: The fleet.
        context: Where and with what.
        timed: The fleet, where it was built and timed before.
    """
    if (known_bytes(job.specs, context.device.type, context.given) or 0) > _LARGE:
        gc.collect()  # the parts of an earlier fleet hold each other: without this they stay a while, on a GPU too
    with _threads(job, context):
        fleet = _fleet(job, context, timed)
        del timed
        loop = FleetLoop(fleet, context.folder, context.on_row, context.progress)
        turns = loop.turns(context.resume)
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


def _fleet(job: FleetJob, context: TrainContext, timed: TimedFleet | None) -> Fleet:
    for line in repair(context.folder, job.specs) if context.resume else ():
        context.progress.note(line)
    begun = begun_header(context.folder, job.specs) if context.resume else None
    if begun is None:
        return best_fleet(partial(context.build, job.specs), context.progress.note, timed)
    fleet = context.build(job.specs, "fused" in (begun.path or ""))
    if begun.path != fleet.path:
        device = begun.provenance.get("device", "another device")
        said = f"{fleet.spec.run_id} was begun on {device} and its log says so; resume it with "
        raise BadInput(said, argument("device", device), ", or choose another ", argument("out"))
    return fleet


@contextmanager
def _threads(job: FleetJob, context: TrainContext) -> Iterator[None]:
    before = torch.get_num_threads()
    if context.device.type == "cpu":
        torch.set_num_threads(job.threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _next_turn(waiting: Sequence[Ready]) -> int:
    """Whose turn it is: the first that can go on. Small fleets so go on while a large one keeps the GPU busy."""
    while True:
        for at, ready in enumerate(waiting):
            if ready():
                return at
        time.sleep(POLL_SECONDS)
