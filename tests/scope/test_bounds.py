"""Memory, time and probes that are allowed: what is measured fits, and what was left out is said."""

import pytest
import torch
from scope.nets import Net, samples

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope.bounds import Bounds, Plan, Sizes, batch_that_fits

FAST = {"redraws": 9, "directions": 2}


def test_rho_is_of_the_full_set_alone():
    x, y = samples()
    rows = {p: cs.audit_model(Net(), loader=(x, y), probes=p, **FAST).logs[0].probes[0] for p in ("standard", "full")}
    assert rows["standard"].rho is None
    assert rows["standard"].not_measured["rho"] == "not asked for: pass probes='full', or its name among probes=[...]"
    assert rows["full"].rho.directions == 2
    named = cs.audit_model(Net(), loader=(x, y), probes=["drift"], **FAST).logs[0].probes[0]
    assert named.drift is not None
    assert named.fidelity is None
    assert named.nudge is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"probes": "fast"}, "unknown probes 'fast'"),
        ({"probes": ["roh"]}, "unknown probe 'roh'; did you mean 'rho'"),
        ({"memory": "8 apples"}, "wanted memory in bytes or with a unit, got '8 apples'"),
        ({"memory": 0}, "wanted memory as a number above 0, got 0"),
        ({"memory": 1000}, "GiB beside the model"),
        ({"budget": "25 steps"}, "wanted budget in seconds or times a step"),
        ({"budget": -1}, "wanted budget as a number above 0"),
    ],
)
def test_what_cannot_be_meant_is_named(given, says):
    with pytest.raises(BadInput, match=says):
        cs.audit_model(Net(), loader=samples(), **given, **FAST)


def test_units_and_multiples_of_a_step():
    assert Bounds(memory="1.5 GiB").bytes(torch.device("cpu")) == 1.5 * 2**30
    assert Bounds(memory="2MB").bytes(torch.device("cpu")) == 2_000_000
    assert Bounds(budget="25x").seconds(2.0) == 50
    assert Bounds(budget=25).seconds(2.0) == 25
    assert Bounds(budget="25 s").seconds(2.0) == 25


def test_a_bound_on_memory_splits_the_work_and_leaves_the_numbers():
    x, y = samples(n=48)
    free = cs.audit_model(Net(), loader=(x, y), **FAST).logs[0]
    bound = cs.audit_model(Net(), loader=(x, y), memory="120 KB", **FAST).logs[0]
    assert bound.header.spec.probe.batch < 48 == bound.header.spec.probe.n
    assert bound.epochs[0].reference.median == pytest.approx(free.epochs[0].reference.median, rel=1e-6)
    assert any("the expensive set is measured on" in note for note in bound.problems)


def test_a_budget_of_time_measures_fewer_samples_and_says_so():
    x, y = samples(n=64)
    log = cs.audit_model(Net(), loader=(x, y), budget=1e-6, **FAST).logs[0]
    assert log.epochs[0].hidden.n == 16
    assert any("measured on 16 samples (16 for the expensive set) to keep within 1e-06 s" in n for n in log.problems)


def test_progress_is_told():
    told = []
    cs.audit_model(Net(), loader=samples(), progress=lambda what, share: told.append((what, share)), **FAST)
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert told[0][0].startswith("measuring (about ")
    assert told[-1] == ("measured", 1.0)


def test_as_many_at_once_as_fit():
    sizes = Sizes(made=1000, states=10, width=4, fixed=500)
    allowed = 500 + int(sizes.at_once * 40)
    assert batch_that_fits(sizes, allowed, 128) == 16
    assert batch_that_fits(sizes, 100 * allowed, 128) == 128
    assert Plan(100, 8, 50, 20, (), 0.0, 0).smaller(0.5) == Plan(50, 8, 25, 16, (), 0.0, 0)
