"""Whether a fleet is compiled: only where a calibration says it pays, and never at the price of a training."""

import pytest
from cases import fleets
from cases.fleets import spec

from creditscope.execution import choose
from creditscope.execution.choose import best_fleet, pays_to_fuse

LONG = 10**6


def runs(epochs):
    return [spec("bp", epochs=epochs), spec("dfa", epochs=epochs)]


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(choose.shutil, "which", lambda name: "/usr/bin/g++")


def test_it_pays_when_what_is_saved_exceeds_what_it_costs(compiler, monkeypatch):
    fleet = fleets.fleet(runs(epochs=100))
    steps = 100 * fleet.steps_per_epoch
    cost = choose.FUSING_SECONDS["cpu"] * 2  # groups
    even = cost / choose.FUSING_SAVES / steps
    assert pays_to_fuse(fleet, 1.01 * even)
    assert not pays_to_fuse(fleet, 0.99 * even)
    monkeypatch.setattr(choose.shutil, "which", lambda name: None)
    assert not pays_to_fuse(fleet, 1.01 * even), "nothing compiles without a compiler"


class Built:
    """Builds fleets that say how long a step takes; a compiled one may fail."""

    def __init__(self, monkeypatch, plain, fused, epochs=LONG):
        self.made = []
        self.epochs = epochs
        monkeypatch.setattr(choose, "step_seconds", lambda fleet: self._step(fleet, fused if fleet.fused else plain))

    def _step(self, fleet, seconds):
        if isinstance(seconds, Exception):
            raise seconds
        fleet.train_epoch(1, steps=2)
        return seconds

    def __call__(self, fused):
        fleet = fleets.Fleet(runs(self.epochs), fleets.features(), fleets.default_model, fleets.CPU)
        fleet.fused = fused  # the compiler itself is not asked
        self.made.append(fused)
        return fleet


@pytest.mark.parametrize(("plain", "fused", "chosen"), [(1.0, 0.5, True), (1.0, 1.5, False), (1e-9, 1e-10, False)])
def test_the_faster_one_trains_and_begins_at_the_beginning(monkeypatch, compiler, plain, fused, chosen):
    said = []
    fleet = best_fleet(Built(monkeypatch, plain, fused), said.append)
    assert fleet.fused is chosen
    assert float(fleet.optimiser.steps) == 0
    assert all((fleet.params[name] == start).all() for name, start in fleet.init.items())
    assert said == []


def test_a_compiler_that_fails_is_said_and_the_fleet_trains(monkeypatch, compiler):
    said = []
    fleet = best_fleet(Built(monkeypatch, 1.0, RuntimeError("no header")), said.append)
    assert not fleet.fused
    assert said == ["compiling failed (RuntimeError): the fleet of 2 runs trains uncompiled"]


def test_a_short_training_is_not_even_timed(monkeypatch):
    build = Built(monkeypatch, ZeroDivisionError(), ZeroDivisionError(), epochs=4)
    assert not best_fleet(build, print).fused
    assert build.made == [False]
