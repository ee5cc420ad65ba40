"""How a fleet is best trained on this device: a short calibration decides, nothing is assumed."""

import shutil
from collections.abc import Callable, Generator, Sequence

from creditscope.engine.estimate import step_seconds
from creditscope.engine.fleet import Fleet
from creditscope.engine.streams import Ready, at_once
from creditscope.records import RunSpec
from creditscope.sweeps.ahead import Ahead

# What compiling one group takes in seconds, here and where other processes have done it before, and the least share of
# the training that it then saves: see the performance page. Training must be long enough to win the seconds back.
FUSING_SECONDS = {"cuda": 15.0, "cpu": 30.0}
FETCHING_SECONDS = 5.0
FUSING_SAVES = 0.3
# Below this many steps nothing is worth finding out.
FEW_STEPS = 300


def pays_to_fuse(fleet: Fleet, seconds: float, ahead: bool = False) -> bool:
    """Whether compiling a fleet would save more time than it takes.

    Args:
        fleet: The fleet, not compiled.
        seconds: What one step takes.
        ahead: Whether other processes compile it first.
    """
    if shutil.which("g++") is None:  # the compiler's compiler
        return False
    each = FETCHING_SECONDS if ahead else FUSING_SECONDS[fleet.device.type]
    return FUSING_SAVES * seconds * fleet.planned_steps > each * len(fleet.groups)


def best_fleet(
    build: Callable[[bool], Fleet],
    say: Callable[[str], None],
    ahead: Callable[[Sequence[Sequence[RunSpec]]], Ahead] | None = None,
) -> Generator[Ready, None, Fleet]:
    """A fleet at initialisation, compiled where that was found to pay; yields what must come true before it goes on.

    Args:
        build: Builds it, compiled or not.
        say: Hears, in one line, when compiling was tried and failed.
        ahead: Has its groups compiled by other processes first; None: they cannot.
    """
    plain = build(False)
    if plain.planned_steps < FEW_STEPS:
        return plain
    for _ in plain.rehearse():
        yield at_once
    seconds = step_seconds(plain)
    if not pays_to_fuse(plain, seconds, ahead is not None):
        plain.rewind()
        return plain
    groups = [plain.specs[group.runs] for group in plain.groups]
    del plain  # others may need its memory meanwhile
    if ahead is not None:
        with ahead(groups) as compilers:
            yield compilers.done
    try:
        fused = build(True)
        for _ in fused.rehearse():
            yield at_once
        if step_seconds(fused) < seconds:
            fused.rewind()
            return fused
    except Exception as error:  # a compiler can fail in any way, and training does not need it
        say(f"compiling failed ({type(error).__name__}): the fleet of {sum(map(len, groups))} runs trains uncompiled")
    return build(False)
