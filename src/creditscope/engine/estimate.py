"""How long a fleet will take, from a short calibration on the device it will run on."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from creditscope.engine.fleet import Fleet
from creditscope.probes.expensive import measure_expensive
from creditscope.probes.schedule import expensive_epochs, is_expensive

WARM_STEPS = 3
TIMED_STEPS = 10


@dataclass(frozen=True)
class Estimate:
    """Seconds a fleet is expected to take.

    Args:
        train: Optimiser steps.
        measure: Evaluation and per-epoch probes.
        probe: The expensive set.
    """

    train: float
    measure: float
    probe: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.train + self.measure + self.probe


def estimate(fleet: Fleet) -> Estimate:
    """Time a few steps, one measurement and one expensive probe a rule. This moves the fleet on: build another.

    Args:
        fleet: A fleet to throw away afterwards.
    """
    epochs = fleet.spec.epochs or 0
    step = step_seconds(fleet)
    measure = _seconds(fleet, lambda: (fleet.evaluate(), fleet.observe()))
    probe = 0.0
    for group in fleet.groups:
        each = _seconds(fleet, partial(_expensive, fleet, group.start))
        probe += each * sum(_expensive_count(fleet, run, epochs) for run in range(group.start, group.stop))
    return Estimate(step * fleet.planned_steps, measure * (epochs + 1), probe)


def step_seconds(fleet: Fleet) -> float:
    """Seconds that a step of the whole fleet takes. The fleet is moved on by some steps: ``rewind`` it.

    Args:
        fleet: The fleet.
    """
    timed = min(TIMED_STEPS, fleet.steps_per_epoch)
    with fleet.streams.turn():
        fleet.train_epoch(1, steps=WARM_STEPS)
        return _seconds(fleet, lambda: fleet.train_epoch(2, steps=timed)) / timed


def _expensive(fleet: Fleet, run: int) -> None:
    probe = fleet.specs[run].probe
    assert probe is not None
    measure_expensive(fleet.snapshot(run, 0), probe.redraws, probe.directions, keep_draws=False)


def _expensive_count(fleet: Fleet, run: int, epochs: int) -> int:
    listed = expensive_epochs(fleet.specs[run])
    return sum(is_expensive(epoch, epochs, listed) for epoch in range(epochs + 1))


def _seconds(fleet: Fleet, work: Callable[[], object]) -> float:
    fleet.streams.quiet()
    began = time.monotonic()
    work()
    fleet.streams.wait()
    return time.monotonic() - began
