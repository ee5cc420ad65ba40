"""The last step of a watched loop, and whether it went down: against plain autograd."""

import copy

import numpy as np
import pytest
import torch
from scope.nets import Net, samples, train
from torch.nn import functional

import creditscope as cs
from creditscope.blocks import Blocks
from creditscope.scope.steps import LastStep

FAST = {"redraws": 0, "directions": 0, "budget": 1.0, "on_alert": lambda alert: None}


def test_the_last_step_is_after_minus_before_net_of_decay():
    model = Net()
    last = LastStep(Blocks.of(model))
    assert last.update() is None
    last.keep(0.0)
    assert last.update() is None
    before = copy.deepcopy(model.state_dict())
    train(model, *samples(), 1)
    last.keep(0.25)
    name = "blocks.1.linear.weight"
    update = last.update()
    torch.testing.assert_close(update[name], model.state_dict()[name] - 0.75 * before[name])
    assert set(update) == {n for n, _ in model.named_parameters() if n.startswith("blocks.")}
    train(model, *samples(), 1)
    assert last.update() is None
    last.keep(0.0)
    assert last.update() is not None
    last.epoch()
    # Three steps were taken: in the next epoch the second is the first that is kept.
    for copied in (False, True, True):
        assert last.due is copied
        last.keep(0.0)
    assert last.update() is not None
    last.epoch()
    last.keep(0.0)
    assert last.update() is None


def test_step_descent_is_the_cosine_of_the_step_with_the_gradient():
    x, y = samples()
    model = Net()
    with cs.watch(model, probe=(x, y), **FAST) as scope:
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)
        for _ in range(2):
            before = copy.deepcopy(model)
            optimiser.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimiser.step()
            scope.step(decay=0.01 * 0.5)
        scope.epoch()
        here = copy.deepcopy(model).double().eval()
    functional.cross_entropy(here(x.double()), y).backward()
    row = next(row for row in scope.log.probes if row.epoch == 1)
    for block, value in enumerate(row.step_descent):
        old, now = (list(m.blocks[block].parameters()) for m in (before, here))
        step = np.concatenate(
            [(b - (1 - 0.005) * a.double()).detach().flatten() for a, b in zip(old, now, strict=True)]
        )
        slope = np.concatenate([p.grad.flatten() for p in now])
        assert value == pytest.approx(step @ slope / np.linalg.norm(step) / np.linalg.norm(slope), abs=1e-4)
        assert value < 0


def test_without_calls_of_step_it_is_not_measured():
    model = Net()
    with cs.watch(model, probe=samples(), **FAST) as scope:
        train(model, *samples(), 2)
        scope.epoch()
    assert "no optimiser step was kept" in scope.log.probes[-1].not_measured["step_descent"]


def test_without_a_budget_no_step_is_kept():
    model = Net()
    with cs.watch(model, probe=samples(), **FAST | {"budget": 0.0}) as scope:
        train(model, *samples(), 1)
        scope.step()
        train(model, *samples(), 1)
        scope.step()
        scope.epoch()
    assert "step_descent" in scope.log.probes[-1].not_measured
    assert scope.log.last.step == 2
