"""Memory: what is predicted from shapes is what torch's own allocator counts; splits lose nothing and fit."""

import os

import numpy as np
import pytest
import torch
from cases.tiny import tiny
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from creditscope.data.dataset import Splits, make_dataset
from creditscope.data.text import text_dataset
from creditscope.engine.checkpoint import FleetState
from creditscope.engine.fleet import Fleet
from creditscope.engine.footprint import Tally, parameter_sizes, state_size, step_peak
from creditscope.engine.memory import _shapes, fleet_bytes, free_bytes, split
from creditscope.engine.start import default_model
from creditscope.plans.presets import build_specs
from creditscope.probes.expensive import measure_expensive
from creditscope.rules.build import rule_of
from creditscope.rules.direct_feedback import DirectFeedback


def pictures(train=300, test=100):
    draw = np.random.default_rng(0)
    x = [draw.integers(0, 256, (n, 1, 16, 16), dtype=np.uint8) for n in (train, test)]
    y = [draw.integers(0, 10, n) for n in (train, test)]
    return make_dataset("pictures", Splits(x[0], y[0], x[1], y[1]), 10)


DATA = pictures()
SMALL = {"batch": 100, "width": 96, "probe.n": 100, "probe.batch": 50, "probe.directions": 32}
TEXT = text_dataset("text", "the quick brown fox jumps over the lazy dog. " * 300, "text")
VIT = {"model": "vit-mini", "view": "cls", "width": 16}
GPT = {"model": "gpt-mini", "view": "all", "width": 16, "batch": 32, "depth": 2, "probe.n": 16, "probe.batch": 8}
RESNET = {"model": "resnet", "width": 8, "depth": 3}


def specs_of(methods, seeds=(1,), changes=None, data=DATA):
    return build_specs(tiny(), data.spec, data.classes, methods, seeds, SMALL | (changes or {}))


def two_epochs(specs, data=DATA):
    """What a fleet does of all that it does many times."""
    fleet = Fleet(specs, data, default_model, torch.device("cpu"))
    boundary = None
    for epoch in (0, 1, 2):
        if epoch:
            fleet.train_epoch(epoch, steps=2)
        reached = FleetState(fleet, epoch)
        fleet.evaluate(), fleet.observe()
        snapshot = fleet.snapshot(len(specs) - 1, epoch, reached.state)
        measure_expensive(snapshot, 0, fleet.spec.probe.directions, keep_draws=False)
        boundary = reached
    return boundary


def allocated(work):
    """The peak that torch's allocator reports while some work is done."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    peak = 0
    while waiting:
        event = waiting.pop()
        waiting += event.children
        peak = max(peak, getattr(event.extra_fields, "total_allocated", 0))
    return peak


@pytest.mark.parametrize(
    ("methods", "seeds", "changes"),
    [
        (["bp"], (1,), {}),
        (["dfa"], (1, 2, 3, 4), {"depth": 6}),
        (["fa-block", "bp+pen0.1"], (1, 2), {"batch": 30}),
        (["bp", "dfa-rms+pen0.01", "fa", "bp@frozen"], (1, 2), {"width": 48}),
        (["bp", "dfa-rms"], (1,), VIT),
        (["bp", "dfa"], (1, 2), RESNET),
        (["bp", "dfa", "fa"], (1, 2), GPT),
    ],
)
def test_the_peak_is_predicted_within_a_fifth(methods, seeds, changes):
    data = TEXT if changes is GPT else DATA
    specs = specs_of(methods, seeds, changes, data)
    two_epochs(specs[:1], data)  # what torch sets up once is no fleet's
    assert fleet_bytes(specs, "cpu") == pytest.approx(allocated(lambda: two_epochs(specs, data)), rel=0.2)


@pytest.mark.parametrize("method", ["bp", "dfa", "fa-block", "fa", "fa-exact-head"])
@pytest.mark.parametrize("changes", [{}, VIT], ids=["resmlp", "vit-mini"])
def test_the_state_is_what_a_fleet_holds(method, changes):
    (spec,) = specs_of([method], changes=changes)
    fleet = Fleet([spec], DATA, default_model, torch.device("cpu"))
    assert parameter_sizes(_shapes(spec)) == {name: p[0].numel() for name, p in fleet.params.items()}
    held = sum(f.numel() for f in fleet.state_of(0).values())
    assert state_size(_shapes(spec), rule_of(spec, {})) == held


def test_a_tally_by_hand():
    a = torch.zeros(10, dtype=torch.float64)
    with Tally() as tally:
        b = a + 1  # 80 bytes
        c = b.view(2, 5)  # a view: none
        d = (c * 2).sum()  # 80 for a moment, then 8
        a.add_(1)  # what was there before is not counted
        assert (tally.held, tally.peak) == (88, 168)
        del b, c
        assert tally.held == 8
    assert float(d) == 20


def test_a_step_holds_at_least_its_gradients_for_every_run():
    shapes = _shapes(specs_of(["dfa"])[0])
    five, six, seven = (step_peak(shapes, DirectFeedback(), False, 100, runs) for runs in (5, 6, 7))
    gradients = 4 * sum(parameter_sizes(shapes).values())
    assert six - five > gradients
    assert seven - six == six - five


def test_a_card_takes_more_than_a_cpu_for_the_same_fleet():
    specs = specs_of(["dfa"], range(4))
    assert fleet_bytes(specs, "cuda") > fleet_bytes(specs, "cpu")


(ONE,) = specs_of(["bp"])


@given(st.integers(1, 40), st.none() | st.integers(1, 50), st.none() | st.integers(1, 9))
def test_a_cut_keeps_every_run_once_and_in_order(n, share, size):
    fleet = [ONE.model_copy(update={"seed": seed}) for seed in range(n)]
    limit = None if share is None else share * fleet_bytes([ONE], "cpu")
    parts = split(fleet, limit, size, "cpu")
    assert [run for part in parts for run in part] == fleet
    assert all(parts)
    assert all(size is None or len(part) <= size for part in parts)
    assert all(limit is None or fleet_bytes(part, "cpu") <= max(limit, fleet_bytes([ONE], "cpu")) for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_cut_is_no_finer_than_it_must_be():
    fleet = [ONE.model_copy(update={"seed": seed}) for seed in range(12)]
    assert len(split(fleet, fleet_bytes(fleet, "cpu"), None, "cpu")) == 1
    assert len(split(fleet, fleet_bytes(fleet, "cpu") - 1, None, "cpu")) == 2


def test_free_memory_is_a_part_of_what_the_machine_has():
    assert 0 < free_bytes(torch.device("cpu")) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
