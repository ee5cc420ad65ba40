"""Activity-perturbed forward gradient: unbiased, and as far off as a random direction is."""

import math

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from cases.rule_cases import case

from creditscope.blocks import observe
from creditscope.rules.block_rule import Seen


def draws(made, count):
    """Credit of many draws, one tensor a state of shape (draws, samples, width), and the gradient."""
    seen = observe(made.task, made.params, None, {}, made.batch)
    generator = torch.Generator().manual_seed(0)
    noise = {
        name: torch.randn(count, *shape, generator=generator, dtype=torch.float64)
        for name, shape in made.rule.noise(made.task, made.params, len(made.batch.y)).items()
    }

    def one(noise):
        given = Seen(made.batch, seen.states, seen.error, noise)
        return made.rule.credit(made.task, made.params, made.state, given)

    return torch.func.vmap(one)(noise), seen.references


def test_the_mean_of_many_draws_is_the_gradient_as_far_off_as_it_should_be():
    """‖mean − g‖²/‖g‖² has mean (n + 1)/K: over samples, within the spread of so many."""
    count = 400
    found, references = draws(case("fg-act", n=60), count)
    for c, g in zip(found, references, strict=True):
        off = (c.mean(0) - g).norm(dim=1) / g.norm(dim=1)
        wanted = math.sqrt((g.shape[1] + 1) / count)
        assert float(off.square().mean().sqrt()) == pytest.approx(wanted, rel=0.15)


def test_the_cosine_of_one_draw_is_that_of_a_random_direction():
    found, references = draws(case("fg-act", n=60), 100)
    for c, g in zip(found, references, strict=True):
        n = g.shape[1]
        wanted = math.gamma(n / 2) / (math.sqrt(math.pi) * math.gamma((n + 1) / 2))
        cosine = torch.nn.functional.cosine_similarity(c, g.expand_as(c), dim=2)
        assert float(cosine.mean()) == pytest.approx(wanted, abs=0.015)
        assert float(cosine.min()) >= 0, "never against the gradient"


def test_one_joint_tangent_is_the_sum_of_all():
    """Unbiased as well; every other state's slope is noise in its size, and costs cosine."""
    made = case("fg-act(joint=true)", n=60)
    joint, references = draws(made, 400)
    alone, _ = draws(case("fg-act", n=60), 400)
    for c, a, g in zip(joint, alone, references, strict=True):
        # E‖c_l‖² = (n + 2)·‖g_l‖² + n·Σ_{k≠l} ‖g_k‖²
        n, others = g.shape[1], sum(each.square().sum(1) for each in references) - g.square().sum(1)
        wanted = (n + 2) * g.square().sum(1) + n * others
        assert float((c.square().sum(2).mean(0) / wanted).mean()) == pytest.approx(1, rel=0.1)
        off = (c.mean(0) - g).square().sum(1) * 400 / (wanted - g.square().sum(1))
        assert float(off.mean()) == pytest.approx(1, rel=0.3)
        cosines = [torch.nn.functional.cosine_similarity(each, g.expand_as(each), dim=2).mean() for each in (c, a)]
        assert 0 < float(cosines[0]) < 0.8 * float(cosines[1])


def test_the_vectors_of_a_run_are_its_own_and_fresh_at_each_step():
    made = fleets.fleet([spec("fg-act", seed=1), spec("fg-act", seed=2)])
    keys = [made.state_of(run)["key"] for run in (0, 1)]
    assert not torch.equal(*keys)
    made.begin_epoch(1)
    made.step()
    first = made.noise.of(0)["v.0"].clone()
    made.step()
    assert not torch.equal(first, made.noise.of(0)["v.0"])
    assert not torch.equal(first[0], first[1])
    assert torch.equal(made.state_of(0)["key"], keys[0])
