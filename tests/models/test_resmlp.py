"""ResMLP against numpy, and the facts of its initialisation."""

import math

import numpy as np
import pytest
import torch
from cases.by_hand import backward
from cases.models import params_of, resmlp, seeded_generator
from torch import nn
from torch.nn import functional

from creditscope.blocks import Blocks
from creditscope.models.resmlp import ResMLP


def natural_images(n=512):
    """Smooth images with noise, normalised per channel, with the brightness spread of CIFAR-10 (sd of means 0.5)."""
    generator = seeded_generator()
    coarse = torch.randn(n, 3, 8, 8, generator=generator)
    light = 0.45 * torch.randn(n, 1, 1, 1, generator=generator)
    fine = 0.3 * torch.randn(n, 3, 32, 32, generator=generator)
    x = functional.interpolate(coarse, scale_factor=4, mode="bilinear", align_corners=False) + light + fine
    return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)


@pytest.fixture(scope="module")
def at_init():
    torch.manual_seed(0)
    model = ResMLP((3, 32, 32), 10)
    with torch.no_grad():
        return model, Blocks.of(model).forward(dict(model.named_parameters()), natural_images())


@pytest.mark.parametrize("terminal_ln", [True, False])
def test_the_forward_pass_equals_numpy(terminal_ln):
    model = resmlp(terminal_ln=terminal_ln)
    x = torch.randn(3, 5, generator=seeded_generator(), dtype=torch.float64)
    params = {name: p.numpy() for name, p in params_of(model).items()}
    _, _, logits = backward("bp", params, {}, x.numpy(), np.zeros(3, int), terminal_ln=terminal_ln)
    np.testing.assert_allclose(model(x).detach(), logits, rtol=1e-10)


def test_defaults_are_the_recipes():
    model = ResMLP((3, 32, 32), 10)
    assert model.embed.weight.shape == (256, 3072)
    assert len(model.blocks) == 4
    assert isinstance(model.out_ln, nn.LayerNorm)
    kinds = [type(layer) for layer in model.blocks[0].branch]
    assert kinds == [nn.LayerNorm, nn.Linear, nn.GELU, nn.Linear]
    assert model.blocks[0].branch[2].approximate == "none"
    assert model.head.weight.shape == (10, 256)


def test_images_are_flattened():
    model = ResMLP((3, 4, 4), 2, width=8, depth=1)
    x = torch.ones(2, 3, 4, 4)
    assert torch.equal(model(x), model(x.flatten(1)))


def test_without_a_terminal_norm_there_is_none():
    model = ResMLP((5,), 3, width=8, terminal_ln=False)
    assert isinstance(model.out_ln, nn.Identity)
    assert not any(name.startswith("out_ln") for name, _ in model.named_parameters())


def test_the_second_map_of_a_branch_starts_small_with_no_bias(at_init):
    model, _ = at_init
    for block in model.blocks:
        weight, bias = block.branch[3].weight, block.branch[3].bias
        n = weight.numel()
        assert abs(float(weight.mean().detach())) < 5 * 0.01 / math.sqrt(n)
        assert abs(float(weight.std().detach()) / 0.01 - 1) < 5 / math.sqrt(2 * n)
        assert float(weight.detach().abs().max()) > 0.03, "normal, not uniform: there are tails"
        assert not bias.any()


def test_everything_else_starts_at_the_frameworks_default(at_init):
    model, _ = at_init
    first = [block.branch[1] for block in model.blocks]
    for linear, fan_in in [(model.embed, 3072), (model.head, 256), *((linear, 256) for linear in first)]:
        bound = 1 / math.sqrt(fan_in)
        for p in (linear.weight, linear.bias):
            assert float(p.detach().abs().max()) <= bound
        sd = bound / math.sqrt(3)
        assert abs(float(linear.weight.std().detach()) / sd - 1) < 5 / math.sqrt(2 * linear.weight.numel())
    for norm in (model.out_ln, *(block.branch[0] for block in model.blocks)):
        assert torch.equal(norm.weight, torch.ones(256))
        assert not norm.bias.any()


def test_at_init_the_stream_starts_near_9(at_init):
    _, seen = at_init
    assert 8 < float(seen.states[0].norm(dim=1).median()) < 10


def test_at_init_each_branch_is_a_tenth_of_the_stream(at_init):
    _, seen = at_init
    for f, h in zip(seen.branches, seen.states, strict=False):
        assert abs(float((f.norm(dim=1) / h.norm(dim=1)).median()) - 0.095) < 0.015


def test_at_init_the_stream_hardly_turns(at_init):
    _, seen = at_init
    first, last = seen.states[0].double(), seen.states[4].double()
    cosine = (first * last).sum(1) / (first.norm(dim=1) * last.norm(dim=1))
    assert abs(float(cosine.mean()) - 0.98) < 0.01


def test_at_init_the_gradient_at_the_top_is_a_hundredth(at_init):
    """Mean-reduced ‖g_L‖ ≈ 8e-3 at N = 128, which is about 1 per sample."""
    model, seen = at_init
    h = seen.states[4][:128].clone().requires_grad_()
    y = torch.arange(128) % 10
    functional.cross_entropy(model.head(model.out_ln(h)), y).backward()
    assert 4e-3 < float(h.grad.norm(dim=1).median()) < 1.6e-2
