"""How fleets are best trained on this device: short calibrations decide, nothing is assumed.

A fleet that was built to be timed is the one that trains, rewound.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from creditscope.engine.estimate import step_seconds
from creditscope.engine.fleet import Fleet
from creditscope.engine.memory import free_bytes
from creditscope.errors import CreditscopeError
from creditscope.execution.context import TrainContext
from creditscope.execution.job import is_out_of_memory
from creditscope.execution.plan import known_bytes
from creditscope.records import RunSpec

# What compiling one group takes in seconds, and the share of the training that it then saves, as measured for ViT-Mini.
# Training must be long enough to win the seconds back.
FUSING_SECONDS = {"cuda": 15.0, "cpu": 30.0}
FUSING_SAVES = 0.33
# Below this many steps nothing is worth finding out.
FEW_STEPS = 300
# Seconds of training from which further processes are worth starting: each needs a few to begin.
PROCESS_SECONDS = 20.0


class TimedFleet(NamedTuple):
    """A fleet at initialisation, and the seconds of one of its steps; None where nobody asked for them."""

    fleet: Fleet
    seconds: float | None = None


def process_count(context: TrainContext, fleets: Sequence[Sequence[RunSpec]]) -> tuple[int, TimedFleet | None]:
    """How many processes train new fleets of our own models fastest on this machine's cores; 1: this one alone.

    The largest on all threads is timed against a share of it on one thread.

    Args:
        context: Where they would be trained.
        fleets: Their runs.

    Returns:
        The number, and the fleet that was built to find out, where this process will train it.
    """
    cores = available_cores()
    # Who asked for one thread has other plans for the cores.
    if cores == 1 or not fleets or torch.get_num_threads() == 1:
        return 1, None
    members = max(fleets, key=len)
    count = min(cores, len(members))
    if count == 1:
        return 1, None
    try:
        return _timed_count(context, members, count)
    except Exception as error:
        if isinstance(error, CreditscopeError) or is_out_of_memory(error):
            return 1, None  # whoever trains it meets the same, and says so
        raise


def _timed_count(context: TrainContext, members: Sequence[RunSpec], count: int) -> tuple[int, TimedFleet | None]:
    whole = context.build(members)
    if whole.planned_steps < FEW_STEPS:
        return 1, TimedFleet(whole)
    together = _timed(whole)
    if together * whole.planned_steps < PROCESS_SECONDS:
        return 1, TimedFleet(whole, together)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        share = _timed(context.build(members[::count]))
    finally:
        torch.set_num_threads(threads)
    return (count, None) if share < together else (1, TimedFleet(whole, together))


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def pays_to_fuse(fleet: Fleet, seconds: float) -> bool:
    """Whether compiling a fleet would save more time than it takes.

    Args:
        fleet: The fleet, not compiled.
        seconds: What one step takes.
    """
    if shutil.which("g++") is None:  # the compiler's compiler
        return False
    return FUSING_SAVES * seconds * fleet.planned_steps > FUSING_SECONDS[fleet.device.type] * len(fleet.groups)


def best_fleet(build: Callable[[bool], Fleet], say: Callable[[str], None], timed: TimedFleet | None = None) -> Fleet:
    """A fleet at initialisation, compiled where that was found to pay.

    Args:
        build: Builds it, compiled or not.
        say: Hears, in one line, when compiling was tried and failed.
        timed: The fleet, where it was built before, not compiled.
    """
    plain, seconds = timed or TimedFleet(build(False))
    if plain.planned_steps < FEW_STEPS:
        return plain
    seconds = _timed(plain) if seconds is None else seconds
    if not pays_to_fuse(plain, seconds):
        return plain
    runs = len(plain.specs)
    kept = plain if timed is not None or _room_for_another(plain) else None
    del plain
    try:
        fused = build(True)
        if _timed(fused) < seconds:
            return fused
    except Exception as error:  # a compiler can fail in any way, and training does not need it
        say(f"compiling failed ({type(error).__name__}): the fleet of {runs} runs trains uncompiled")
    return kept or build(False)


def _room_for_another(fleet: Fleet) -> bool:
    """Whether a second fleet like this one fits beside it; where that is not known, it is tried."""
    size = known_bytes(fleet.specs, fleet.device.type, fleet.rules)
    return size is None or size <= free_bytes(fleet.device)


def _timed(fleet: Fleet) -> float:
    """Seconds of one step; the fleet is then at initialisation again."""
    seconds = step_seconds(fleet)
    fleet.rewind()
    return seconds
