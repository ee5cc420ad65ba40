"""Predictive coding: read wave by wave it is backprop; converged it comes near it as the error gets small."""

from itertools import pairwise

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from cases.models import CONV_BLOCKS, batch_of, conv_net, params_of, resmlp, scrambled, task_of, vit
from cases.rule_cases import case

from creditscope.blocks import Batch, observe
from creditscope.models.mlp import MLP
from creditscope.rules.build import rule_named


@pytest.mark.parametrize(
    ("make", "shape", "where"),
    [
        (resmlp, (5,), None),
        (lambda: scrambled(MLP((5,), 3, width=6, depth=4, terminal_ln=True, activation="tanh")), (5,), None),
        (vit, (2, 8, 8), None),
        (conv_net, (1, 4, 4), CONV_BLOCKS),
    ],
)
def test_read_wave_by_wave_it_is_backprop(make, shape, where):
    model, batch = make(), batch_of(shape, 3)
    task, params = task_of(model, batch.x, where), params_of(model)
    ours, exact = (rule_named(name) for name in ("pc(zil=true)", "bp"))
    for c, g in zip(ours.deliver(task, params, {}, batch), exact.deliver(task, params, {}, batch), strict=True):
        torch.testing.assert_close(c, g, rtol=0, atol=1e-14 * float(g.abs().max()))
    got, wanted = (rule.step(task, params, {}, batch, {}, "").grads for rule in (ours, exact))
    for name, grad in wanted.items():
        torch.testing.assert_close(got[name], grad, rtol=0, atol=1e-14 * float(1 + grad.abs().max()))


def test_trained_with_zil_it_is_backprop():
    ours, _ = fleets.trained([spec("pc(zil=true)")])
    exact, _ = fleets.trained([spec("bp")])
    for name, p in exact.params.items():
        torch.testing.assert_close(ours.params[name], p, rtol=1e-9, atol=1e-11)
    assert all(ours.groups[0].exact)


def off(sharpness, steps):
    """1 − cosine with the gradient, the worst over states and samples, on a net that is right by that much."""
    model, batch = resmlp(), batch_of((5,), 4, 60)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.mul_(sharpness if name.startswith("head") else 0.4 if name.startswith("blocks") else 1)
        best = model(batch.x).topk(2, dim=1)
        sure = (best.values[:, 0] - best.values[:, 1]).topk(6).indices
        batch = Batch(batch.x[sure], best.indices[sure, 0])
    task, params = task_of(model, batch.x), params_of(model)
    credit = rule_named(f"pc(rate=0.3,steps={steps})").deliver(task, params, {}, batch)
    g = observe(task, params, None, {}, batch).references
    error = task.error(task.forward(params, batch.x).logits, batch.y).norm(dim=1).max()
    gaps = [1 - torch.nn.functional.cosine_similarity(c, true, dim=1).min() for c, true in zip(credit, g, strict=True)]
    return float(max(gaps)), float(error.detach())


def test_converged_with_a_tiny_error_it_tends_to_backprop():
    sizes = [off(sharpness, 150) for sharpness in (2.0, 10.0, 16.0)]
    for (gap, error), (smaller, less) in pairwise(sizes):
        assert less < 0.05 * error
        assert smaller < 0.01 * gap
    assert sizes[-1][0] < 1e-6
    assert off(16.0, 4)[0] > 1e-4, "not for a few steps"


def test_what_is_delivered_lowers_the_energy():
    """After T steps less of the loss is left than at the start, at an energy that only fell."""
    made = case("pc(steps=40,rate=0.05)")
    credit = made.deliver()
    start = made.step().loss.sum()
    states = made.task.forward(made.params, made.batch.x).states
    x = [states[0] - credit[0]]
    for level in range(3):
        x.append(
            made.task.apart(made.params, dict(enumerate([*x, *states[len(x) :]])), made.batch.x[:1]).states[level + 1]
        )
        x[-1] = x[-1] - credit[level + 1]
    loss = made.task.loss(made.task.tail(made.params, 3, x[-1], made.batch.x), made.batch.y).sum()
    energy = loss + sum(c.square().sum() / 2 for c in credit)
    assert float(loss) < float(energy) < float(start)


def test_runs_that_differ_in_the_rate_are_one_group():
    made, _ = fleets.trained([spec("pc"), spec("pc(rate=0.05)"), spec("pc(rate=0.2)")])
    assert len(made.groups) == 1
    rates = [one.as_method.options.get("rate") for one in made.specs]
    alone, _ = fleets.trained([spec("pc(rate=0.2)")])
    for name, p in alone.params.items():
        torch.testing.assert_close(p[0], made.params[name][rates.index(0.2)], rtol=1e-9, atol=1e-12)
