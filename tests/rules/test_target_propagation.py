"""Difference target propagation: what true inverses make of it, and what learned ones come to."""

from dataclasses import dataclass

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from cases.models import batch_of, params_of, scrambled, seeded_generator, task_of

from creditscope.blocks import observe
from creditscope.models.mlp import MLP
from creditscope.rules.block_rule import Seen
from creditscope.rules.target_propagation import TargetPropagation


@dataclass(frozen=True)
class TrueInverse(TargetPropagation):
    """G_l = F_l⁻¹ of linear blocks, whose weights stand in the state."""

    def inverse(self, state, level, h):
        weight, bias = (state[f"blocks.{level}.0.{kind}"] for kind in ("weight", "bias"))
        return torch.linalg.solve(weight, (h - bias).unsqueeze(-1)).squeeze(-1)


def delivered(rule, orthogonal):
    model, batch = scrambled(MLP((5,), 4, width=6, depth=3, terminal_ln=True, activation="identity")), batch_of((5,), 4)
    if orthogonal:
        with torch.no_grad():
            for block in model.blocks:
                block[0].weight.copy_(torch.linalg.qr(block[0].weight)[0])
    task, params = task_of(model, batch.x), params_of(model)
    credit = rule.deliver(task, params, params, batch)
    return credit, observe(task, params, None, {}, batch).references, params


def test_true_inverses_of_linear_blocks_give_the_gauss_newton_step():
    credit, g, params = delivered(TrueInverse(beta=0.7), orthogonal=False)
    rest = torch.eye(6, dtype=torch.float64)
    for level in (3, 2, 1, 0):
        wanted = 0.7 * torch.linalg.solve(rest.T @ rest, g[level].T).T
        torch.testing.assert_close(credit[level], wanted, rtol=1e-8, atol=1e-10)
        rest = rest @ params[f"blocks.{level - 1}.0.weight"] if level else rest


@pytest.mark.parametrize("beta", [1.0, 0.2])
def test_true_inverses_of_orthogonal_blocks_give_the_gradient(beta):
    credit, g, _ = delivered(TrueInverse(beta=beta), orthogonal=True)
    for c, true in zip(credit, g, strict=True):
        torch.testing.assert_close(c, beta * true, rtol=1e-10, atol=1e-12)


def lost(rule, task, params, state, batch):
    """How much of a block's input its inverse misses, at the forward pass."""
    states = task.forward(params, batch.x).states
    pairs = [(rule.inverse(state, level, states[level + 1]), states[level]) for level in range(task.blocks.depth)]
    return [float((made - h).norm() / h.norm()) for made, h in pairs]


def test_the_inverses_learn():
    made, _ = fleets.trained([spec("dtp", lr=0.02, epochs=30)], epochs=30)
    start = fleets.fleet([spec("dtp")])
    rule, batch = made.groups[0].rule, batch_of((5,), 3, 40)
    params = {name: p[0] for name, p in made.params.items()}
    before, after = (lost(rule, made.task, params, fleet.state_of(0), batch) for fleet in (start, made))
    assert all(b < 0.5 * a for a, b in zip(before, after, strict=True)), (before, after)


def test_runs_that_differ_in_beta_and_sigma_are_one_group_and_stay_themselves():
    methods = ("dtp", "dtp(beta=0.3)", "dtp(sigma=0.5)")
    company, _ = fleets.trained([spec(method) for method in methods])
    assert len(company.groups) == 1
    for run, one in enumerate(company.specs):
        alone, _ = fleets.trained([one])
        for name, p in alone.params.items():
            torch.testing.assert_close(p[0], company.params[name][run], rtol=1e-9, atol=1e-12)


def test_a_true_inverse_has_nothing_to_learn_whatever_the_noise():
    model, batch = scrambled(MLP((5,), 4, width=6, depth=3, activation="identity")), batch_of((5,), 4)
    task, params = task_of(model, batch.x), params_of(model)
    rule, generator = TrueInverse(sigma=0.4), seeded_generator()
    noise = {n: torch.randn(s, generator=generator).double() for n, s in rule.noise(task, params, 3).items()}
    seen = Seen(batch, task.forward(params, batch.x).states, batch.x, noise)
    assert float(rule.lesson(task, params, params, seen)) < 1e-20
