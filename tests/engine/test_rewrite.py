"""Rewritten lists: fewer operations, the same values."""

import pytest
import torch
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from creditscope.engine.rewrite import LONG, simplify, suit_gpu


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def operations(listed):
    return [node.target for node in listed.graph.nodes if node.op == "call_function"]


def test_what_is_computed_twice_or_for_nobody_is_computed_once_or_not():
    listed = make_fx(lambda x: (x.sin() + x.sin(), x.exp())[0])(torch.ones(3))
    shorter = simplify(listed)
    aten = torch.ops.aten
    assert operations(shorter) == [aten.sin.default, aten.add.Tensor]
    x = torch.linspace(0, 1, 3)
    assert torch.equal(shorter(x), 2 * x.sin())


def test_a_layer_norm_is_not_undone_and_done_again_for_its_gain():
    """The gain's gradient is Σ g·x̂, and x̂ is there already."""
    x = torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gain = torch.linspace(0.5, 2, 6, dtype=torch.float64).repeat(5, 1)

    def loss(gain, x):
        return functional.layer_norm(x, (6,), gain, 0 * gain).square().sum()

    aten = torch.ops.aten
    listed = make_fx(vmap(grad(loss)))(gain, x)
    assert aten.sub.Tensor in operations(listed)
    shorter = simplify(listed)
    assert aten.sub.Tensor not in operations(shorter)
    normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    wanted = (2 * gain[:, None] * normed**2).sum(1)
    torch.testing.assert_close(shorter(gain, x), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spoil", ["other input", "other norm's scale"])
def test_what_only_looks_like_a_layer_norm_is_left_alone(spoil):
    aten = torch.ops.aten

    def function(x, z):
        out, mean, scale = aten.native_layer_norm(x, [6], None, None, 1e-5)
        _, _, other = aten.native_layer_norm(z, [6], None, None, 1e-5)
        centred = (z if spoil == "other input" else x) - mean
        return out, centred * (scale if spoil == "other input" else other)

    x, z = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shorter = simplify(make_fx(function)(x, z))
    for ours, wanted in zip(shorter(x, z), function(x, z), strict=True):
        assert torch.equal(ours, wanted)


def test_a_gain_and_a_bias_are_one_operation_and_views_that_change_nothing_none():
    aten = torch.ops.aten
    x, gain, bias = drawn(5, 4, 6), drawn(5, 1, 6), drawn(5, 1, 6)
    listed = make_fx(lambda x, gain, bias: (bias + x * gain).view(5, 4, 6).expand(5, 4, 6))(x, gain, bias)
    shorter = simplify(listed)
    assert operations(shorter) == [aten.addcmul.default]
    torch.testing.assert_close(shorter(x, gain, bias), bias + x * gain, rtol=1e-14, atol=1e-15)


def test_a_product_that_somebody_else_reads_or_that_is_scaled_stays():
    x, gain = drawn(5, 6), drawn(5, 6)
    for function in (lambda x, g: (x * g + 1.0, x * g), lambda x, g: torch.add(x, x * g, alpha=2)):
        shorter = simplify(make_fx(function)(x, gain))
        assert torch.ops.aten.mul.Tensor in operations(shorter)
        for ours, wanted in zip(torch.atleast_1d(shorter(x, gain)), torch.atleast_1d(function(x, gain)), strict=True):
            torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize(
    ("runs", "length", "parts"), [(3, LONG, 16), (3, LONG + 2, 2), (3, LONG // 2, 1), (128, LONG, 1)]
)
def test_a_long_sum_of_products_is_cut_until_it_fills_a_card(runs, length, parts):
    """A weight gradient: two small sides, and a sum over all tokens of a batch; with 16 parts 3 runs have 144 tiles."""
    g, x = drawn(runs, length, 70), drawn(runs, length, 120)

    def function(g, x):
        return torch.bmm(g.transpose(1, 2), x)

    split = suit_gpu(simplify(make_fx(function)(g, x)))
    shapes = []
    aten = torch.ops.aten

    class Seen(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if target is aten.bmm.default:
                shapes.append((tuple(args[0].shape), args[0].data_ptr() == g.data_ptr()))
            return super().call_function(target, args, kwargs)

    made = Seen(split).run(g, x)
    assert shapes == [((runs * parts, 70, length // parts), True)], "split without a copy"
    assert made.shape == (runs, 70, 120)
    torch.testing.assert_close(made, torch.einsum("rkm,rkn->rmn", g, x), rtol=1e-10, atol=1e-9)
