"""Feedback alignment: which maps get a matrix, how it is drawn, and the carriers that use it."""

import math

import numpy as np
import pytest
import torch
from cases.models import assign, batch_of, params_of, resmlp, scrambled, seeded_generator, task_of, vit
from torch import nn

from creditscope.errors import BadInput
from creditscope.models.resmlp import ResMLP
from creditscope.rules.backprop import Backprop
from creditscope.rules.feedback_alignment import FeedbackAlignment
from creditscope.rules.transport import carriers

BRANCH_MAPS = {f"B.blocks.{level}.branch.{i}" for level in range(3) for i in (1, 3)}


@pytest.mark.parametrize("exact_head", [False, True])
def test_every_map_with_something_trainable_before_it_has_a_matrix(exact_head):
    model = resmlp()
    task = task_of(model, batch_of((5,), 4).x)
    params = params_of(model)
    feedback = FeedbackAlignment(exact_head).init(task, params, seeded_generator())
    assert set(feedback) == BRANCH_MAPS | (set() if exact_head else {"B.head"})
    assert all(b.shape == params[f"{name[2:]}.weight"].shape for name, b in feedback.items())


def test_attention_maps_are_reached_one_by_one():
    model = vit()
    feedback = FeedbackAlignment().init(task_of(model, batch_of((2, 8, 8), 3).x), params_of(model), seeded_generator())
    maps = ("attention.query", "attention.key", "attention.value", "attention.out", "mlp.0", "mlp.2")
    assert set(feedback) == {"B.head"} | {f"B.blocks.{level}.branch.{m}" for level in range(2) for m in maps}


def test_matrices_are_drawn_with_the_spread_of_the_weight_at_init():
    torch.manual_seed(0)
    model = ResMLP((5,), 10, width=128, depth=1).double()
    feedback = FeedbackAlignment().init(task_of(model, batch_of((5,), 10).x), params_of(model), seeded_generator())
    # The framework draws uniformly from ±1/√128; the second map of a block starts at N(0, 0.01²).
    for name, sd in (("B.blocks.0.branch.1", 1 / math.sqrt(3 * 128)), ("B.blocks.0.branch.3", 0.01)):
        n = feedback[name].numel()
        assert abs(float(feedback[name].std()) / sd - 1) < 5 * math.sqrt(1 / n), name
        weight = model.get_parameter(f"{name[2:]}.weight").detach()
        assert abs(float((feedback[name] * weight).mean()) / sd**2) < 5 / math.sqrt(n), "independent of the weight"


def test_the_head_learns_exactly_and_out_ln_does_not():
    model, batch = resmlp(), batch_of((5,), 4)
    task, params = task_of(model, batch.x), params_of(model)
    exact = assign(Backprop(), task, params, {}, batch, None).grads
    for rule in (FeedbackAlignment(), FeedbackAlignment(exact_head=True)):
        got = assign(rule, task, params, rule.init(task, params, seeded_generator()), batch, None).grads
        for name in ("head.weight", "head.bias"):
            np.testing.assert_allclose(got[name], exact[name], rtol=1e-12)
        agrees = np.allclose(got["out_ln.weight"], exact["out_ln.weight"], rtol=1e-6)
        assert agrees == rule.exact_head


def test_carriers_change_no_value():
    model, batch = vit(), batch_of((2, 8, 8), 3)
    task, params = task_of(model, batch.x), params_of(model)
    feedback = FeedbackAlignment().init(task, params, seeded_generator())
    plain = task.blocks.forward(params, batch.x)
    with carriers(task.blocks, feedback):
        carried = task.blocks.forward(params, batch.x)
    assert torch.equal(plain.logits, carried.logits)
    assert all(torch.equal(a, b) for a, b in zip(plain.states, carried.states, strict=True))


class Shared(nn.Module):
    """One linear map used twice inside a block."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, h):
        return h + self.linear(torch.tanh(self.linear(h)))


def test_a_map_called_twice_carries_both_times():
    model = scrambled(nn.Sequential(nn.Linear(5, 4), Shared(), Shared(), nn.Linear(4, 3)))
    batch, rule = batch_of((5,), 3), FeedbackAlignment()
    task, params = task_of(model, batch.x, ("1", "2")), params_of(model)
    feedback = rule.init(task, params, seeded_generator())
    matrix, weight, bias = feedback["B.1.linear"], params["1.linear.weight"], params["1.linear.bias"]
    got = assign(rule, task, params, feedback, batch, None).grads["1.linear.weight"]
    h = batch.x @ params["0.weight"].T + params["0.bias"]
    a = torch.tanh(h @ weight.T + bias)
    delta = rule.deliver(task, params, feedback, batch)[1]
    inner = (delta @ matrix) * (1 - a**2)
    np.testing.assert_allclose(got, (delta.T @ a + inner.T @ h) / 3, rtol=1e-9)


def test_a_map_that_starts_at_zero_is_refused():
    model = resmlp()
    with torch.no_grad():
        model.head.weight.zero_()
    task = task_of(model, batch_of((5,), 4).x)
    with pytest.raises(BadInput) as caught:
        FeedbackAlignment().init(task, params_of(model), seeded_generator())
    assert str(caught.value) == (
        "fa cannot draw feedback like 'head': its 24 initial weights have no positive standard deviation; "
        "start it at random values"
    )
    assert "B.head" not in FeedbackAlignment(exact_head=True).init(task, params_of(model), seeded_generator())
