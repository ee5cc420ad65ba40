"""The forward gradient: one slope for all weights, and the laws of its mean and of its direction."""

import math

import numpy as np
import pytest
import torch
from cases import by_hand, mlp_by_hand
from cases.models import mlp, resmlp
from cases.rule_cases import case, same


@pytest.mark.parametrize("penalty", [None, 0.3])
@pytest.mark.parametrize("kind", ["resmlp", "mlp"])
def test_equals_the_slope_written_by_hand(kind, penalty):
    model, written = {"resmlp": (resmlp(), by_hand), "mlp": (mlp(), mlp_by_hand)}[kind]
    made = case("fg", model)
    p, x, y = made.arrays
    options = {"activation": "tanh"} if kind == "mlp" else {}
    grads, _, _ = written.backward("bp", p, {}, x, y, penalty or 0.0, **options)
    slope = sum(float((grads[name] * made.noise[name].numpy()).sum()) for name in grads)
    same(made.step(penalty=penalty).grads, {name: slope * made.noise[name].numpy() for name in grads})


def draws(made, count):
    generator = torch.Generator().manual_seed(3)
    noise = {n: torch.randn(count, *p.shape, generator=generator, dtype=p.dtype) for n, p in made.params.items()}

    def one(noise):
        grads = made.rule.step(made.task, made.params, {}, made.batch, noise, "").grads
        return torch.cat([grad.flatten() for grad in grads.values()])

    return torch.func.vmap(one)(noise)


@pytest.fixture(scope="module")
def many():
    """20,000 draws on a small net, and the true gradient."""
    made = case("fg", resmlp(width=3, depth=1))
    true = case("bp", resmlp(width=3, depth=1)).step().grads
    return draws(made, 20_000), torch.cat([true[name].flatten() for name in made.params])


def test_the_mean_of_many_draws_is_the_gradient(many):
    """200 means of 100 draws each: their root mean square distance is √((n + 1)/100) of ‖g‖, to a few per cent."""
    found, g = many
    means = found.reshape(200, 100, -1).mean(1)
    measured = float(((means - g).norm(dim=1) ** 2).mean().sqrt() / g.norm())
    assert measured == pytest.approx(math.sqrt((len(g) + 1) / 100), rel=0.05)


def test_the_cosine_of_one_draw(many):
    found, g = many
    cosines = torch.nn.functional.cosine_similarity(found, g[None], dim=1, eps=0)
    n = len(g)
    wanted = math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2)) / math.sqrt(math.pi)
    assert float(cosines.min()) >= 0, "a draw never points against the gradient"
    assert float(cosines.mean()) == pytest.approx(wanted, rel=0.02)


def test_what_does_not_train_has_no_share_in_the_slope():
    made = case("fg")
    moving = {name: p for name, p in made.params.items() if name.startswith("head")}
    task = made.task._replace(fixed={name: p for name, p in made.params.items() if name not in moving})
    grads = made.rule.step(task, moving, {}, made.batch, made.noise, "").grads
    p, x, y = made.arrays
    true, _, _ = by_hand.backward("bp", p, {}, x, y)
    slope = sum(float((true[name] * made.noise[name].numpy()).sum()) for name in moving)
    same(grads, {name: slope * np.asarray(made.noise[name]) for name in moving})
