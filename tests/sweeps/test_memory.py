"""Memory: the state counted from shapes is what a real fleet holds; cuts lose nothing."""

import pytest
import torch
from cases.tiny import tiny
from hypothesis import given
from hypothesis import strategies as st

from creditscope.data import load_data
from creditscope.engine.fleet import EVAL_CHUNK, Fleet
from creditscope.sweeps.memory import COPIES, PASSES, _shape, cut, fleet_bytes, free_bytes, run_bytes
from creditscope.sweeps.presets import build_specs
from creditscope.sweeps.turns import default_model


def specs_of(methods, changes=None):
    data = load_data("fashion-mini")
    return build_specs(tiny(), data.spec, data.classes, methods, [1], changes), data


@pytest.mark.parametrize("method", ["bp", "dfa", "fa-block", "fa", "fa-exact-head"])
@pytest.mark.parametrize("model", ["resmlp", "vit-mini"])
def test_the_state_is_what_a_fleet_holds(method, model):
    (spec,), data = specs_of([method], {"model": model, "view": "flat" if model == "resmlp" else "cls"})
    fleet = Fleet([spec], data, default_model, torch.device("cpu"))
    parameters = sum(p.numel() for p in fleet.params.values())
    feedback = sum(f.numel() for f in fleet.feedback_of(0).values())
    _, values = _shape(model, data.spec.shape, data.classes, 12, 3, spec.terminal_ln)
    without_feedback = 4 * (COPIES * parameters + PASSES * max(500, EVAL_CHUNK) * values)
    assert run_bytes(spec) - without_feedback >= 4 * feedback
    if method in ("bp", "dfa", "fa-block"):
        assert run_bytes(spec) - without_feedback == 4 * feedback


def test_values_of_one_sample_by_hand():
    # ResMLP: flatten, embed, then per block LN, linear, GELU, linear and containers; out_ln, head. At least one value
    # a unit for each of these, and never less for a deeper net.
    shallow, deep = (_shape("resmlp", (3, 32, 32), 10, 8, depth, True)[1] for depth in (1, 2))
    assert deep - shallow >= 4 * 8


@given(st.integers(1, 40), st.none() | st.integers(1, 50), st.none() | st.integers(1, 9))
def test_a_cut_keeps_every_run_once_and_in_order(n, share, size):
    (one,), _ = _ONE
    fleet = [one.model_copy(update={"seed": seed}) for seed in range(n)]
    limit = None if share is None else share * run_bytes(one)
    parts = cut(fleet, limit, size)
    assert [run for part in parts for run in part] == fleet
    assert all(parts)
    assert all(size is None or len(part) <= size for part in parts)
    assert all(limit is None or fleet_bytes(part) <= max(limit, run_bytes(one)) for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


_ONE = specs_of(["bp"])


def test_free_memory_is_a_part_of_what_the_machine_has():
    import os

    assert 0 < free_bytes(torch.device("cpu")) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
