"""How a fleet is best trained on this device: a short calibration decides, nothing is assumed."""

import shutil
from collections.abc import Callable

from creditscope.engine.estimate import step_seconds
from creditscope.engine.fleet import Fleet

# What compiling one group takes in seconds, and the share of the training that it then saves, as measured for ViT-Mini.
# Training must be long enough to win the seconds back.
FUSING_SECONDS = {"cuda": 15.0, "cpu": 30.0}
FUSING_SAVES = 0.33
# Below this many steps nothing is worth finding out.
FEW_STEPS = 300


def pays_to_fuse(fleet: Fleet, seconds: float) -> bool:
    """Whether compiling a fleet would save more time than it takes.

    Args:
        fleet: The fleet, not compiled.
        seconds: What one step takes.
    """
    if shutil.which("g++") is None:  # the compiler's compiler
        return False
    return FUSING_SAVES * seconds * fleet.planned_steps > FUSING_SECONDS[fleet.device.type] * len(fleet.groups)


def best_fleet(build: Callable[[bool], Fleet], say: Callable[[str], None]) -> Fleet:
    """A fleet at initialisation, compiled where that was found to pay.

    Args:
        build: Builds it, compiled or not.
        say: Hears, in one line, when compiling was tried and failed.
    """
    plain = build(False)
    if plain.planned_steps < FEW_STEPS:
        return plain
    seconds = step_seconds(plain)
    if not pays_to_fuse(plain, seconds):
        plain.rewind()
        return plain
    runs = len(plain.specs)
    del plain  # its memory may be needed
    try:
        fused = build(True)
        if step_seconds(fused) < seconds:
            fused.rewind()
            return fused
    except Exception as error:  # a compiler can fail in any way, and training does not need it
        say(f"compiling failed ({type(error).__name__}): the fleet of {runs} runs trains uncompiled")
    return build(False)
