"""Whether a fleet is compiled: only where a calibration says it pays, and never at the price of a training."""

import pytest
import torch
from cases import fleets
from cases.fleets import spec

import creditscope as cs
from creditscope.execution import calibrate
from creditscope.execution.calibrate import best_fleet, pays_to_fuse

LONG = 10**6


def runs(epochs):
    return [spec("bp", epochs=epochs), spec("dfa", epochs=epochs)]


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(calibrate.shutil, "which", lambda name: "/usr/bin/g++")


def test_it_pays_when_what_is_saved_exceeds_what_it_costs(compiler, monkeypatch):
    fleet = fleets.fleet(runs(epochs=100))
    steps = 100 * fleet.steps_per_epoch
    cost = calibrate.FUSING_SECONDS["cpu"] * 2  # groups
    even = cost / calibrate.FUSING_SAVES / steps
    assert pays_to_fuse(fleet, 1.01 * even)
    assert not pays_to_fuse(fleet, 0.99 * even)
    monkeypatch.setattr(calibrate.shutil, "which", lambda name: None)
    assert not pays_to_fuse(fleet, 1.01 * even), "nothing compiles without a compiler"


class Built:
    """Builds fleets that say how long a step takes; a compiled one may fail."""

    def __init__(self, monkeypatch, plain, fused, epochs=LONG):
        self.made = []
        self.epochs = epochs
        monkeypatch.setattr(calibrate, "step_seconds", lambda fleet: self._step(fleet, fused if fleet.fused else plain))

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
    assert fleet.optimiser.steps.tolist() == [0] * len(fleet.specs)
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


@pytest.fixture
def counted(monkeypatch, compiler):
    """The sizes of the fleets that are built, compiled or not, on a machine of two cores and a clock of our own."""
    built, seconds = [], {"whole": 1.0, "share": 2.0, "fused": 2.0}
    begin = fleets.Fleet.__init__

    def began(self, specs, *given, **more):
        begin(self, specs, *given[:3])
        self.fused = (*given, more.get("fused", False))[3]
        built.append((len(specs), self.fused))

    def step_seconds(fleet):
        fleet.train_epoch(1, steps=2)
        return seconds["fused" if fleet.fused else "whole" if len(fleet.specs) == 2 else "share"]

    monkeypatch.setattr(fleets.Fleet, "__init__", began)
    monkeypatch.setattr(calibrate, "step_seconds", step_seconds)
    monkeypatch.setattr(calibrate, "PROCESS_SECONDS", 0.0)
    monkeypatch.setattr(calibrate, "FEW_STEPS", 0)
    monkeypatch.setattr(calibrate.os, "sched_getaffinity", lambda who: {0, 1})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    return built, seconds


def test_a_calibrated_fleet_is_built_once(tmp_path, counted, monkeypatch):
    """Two runs: the whole is timed against a share of it, and then trains as it stands, rewound."""
    built, _ = counted
    monkeypatch.setattr(calibrate, "pays_to_fuse", lambda fleet, seconds: False)
    logs = cs.train(runs(4), tmp_path / "timed", data=fleets.features(), device="cpu")
    assert built == [(2, False), (1, False)]
    monkeypatch.setattr(calibrate, "FEW_STEPS", 10**9)
    plain = cs.train(runs(4), tmp_path / "plain", data=fleets.features(), device="cpu")
    for ours, theirs in zip(logs, plain, strict=True):
        assert [row.train_loss for row in ours.epochs] == [row.train_loss for row in theirs.epochs]


@pytest.mark.parametrize("fused", [0.5, 2.0])
def test_a_compiled_candidate_is_built_besides_and_nothing_else(tmp_path, counted, monkeypatch, fused):
    built, seconds = counted
    seconds["fused"] = fused
    monkeypatch.setattr(calibrate, "pays_to_fuse", lambda fleet, seconds: True)
    logs = cs.train(runs(4), tmp_path, data=fleets.features(), device="cpu")
    assert built == [(2, False), (1, False), (2, True)]
    assert {log.header.path for log in logs} == {"stacked, fused" if fused < 1 else "stacked"}


def test_a_short_training_is_built_once_too(tmp_path, counted, monkeypatch):
    monkeypatch.setattr(calibrate, "FEW_STEPS", 10**9)
    cs.train(runs(4), tmp_path, data=fleets.features(), device="cpu")
    assert counted[0] == [(2, False)]


def test_a_fleet_that_cannot_be_calibrated_is_left_to_whoever_trains_it(tmp_path, counted, monkeypatch):
    def full(self, members, fused=False):
        raise MemoryError

    monkeypatch.setattr(calibrate.TrainContext, "build", full)
    assert calibrate.process_count(fleets.context(tmp_path), [runs(4)]) == (1, None)
