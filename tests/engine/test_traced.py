"""A traced fleet gives the values of one that calls its functions; a compiled one the same to rounding."""

import pytest
import torch
from cases import fleets
from cases.fleets import METHODS, images, spec
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from creditscope.engine import fleet as fleet_module
from creditscope.engine.fleet import Fleet
from creditscope.engine.traced import Traced, simplify

RUNS = [
    spec(method, images(), seed=seed, augment="crop4+flip", dtype="float32")
    for method, seed in (
        ("bp", 1),
        ("bp+pen0.1", 2),
        ("fa", 1),
        ("fa-block@last1", 1),
        ("dfa-rms", 1),
        ("dfa@frozen", 2),
    )
]


def trained(fused, device):
    fleet = Fleet(RUNS, images(), fleets.default_model, torch.device(device), fused)
    losses = [fleet.train_epoch(epoch) for epoch in range(1, 5)]
    return fleet, torch.stack(losses)


def compare(device):
    (plain, losses), (fused, fused_losses) = trained(False, device), trained(True, device)
    assert fused.path.endswith(", fused")
    torch.testing.assert_close(fused_losses, losses, rtol=1e-4, atol=1e-5)
    for name, p in plain.params.items():
        torch.testing.assert_close(fused.params[name], p, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_compiled_on_a_cpu_twenty_steps_are_the_same():
    compare("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_compiled_on_a_device_twenty_steps_are_the_same():
    compare("cuda")


def test_every_method_trains_traced_as_it_does_called(monkeypatch):
    runs = [spec(method, seed=1 + at % 2) for at, method in enumerate(METHODS)]
    called, losses = fleets.trained(runs)
    monkeypatch.setattr(fleet_module, "WORTH_TRACING", 0)
    traced, traced_losses = fleets.trained(runs)
    assert all(isinstance(assign, Traced) for assign in traced._assign)
    assert not any(isinstance(assign, Traced) for assign in called._assign)
    torch.testing.assert_close(torch.stack(traced_losses), torch.stack(losses), rtol=1e-11, atol=0)
    for name, p in called.params.items():
        torch.testing.assert_close(traced.params[name], p, rtol=1e-9, atol=1e-12)


def test_only_long_training_is_traced():
    steps = fleets.fleet([spec("bp")]).steps_per_epoch
    enough = -(-fleet_module.WORTH_TRACING // steps)
    for epochs, wanted in ((enough - 1, False), (enough, True)):
        assert isinstance(fleets.fleet([spec("bp", epochs=epochs)])._assign[0], Traced) == wanted


def test_a_function_is_traced_once_for_its_shapes(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda traced, dynamic: calls.append(dynamic) or traced)

    def function(x, parts):
        calls.append("run")
        return x + parts["a"], {"twice": 2 * x}

    fused = Traced(function, compiled=True)
    for value in (1.0, 2.0):
        total, rest = fused(torch.full((2,), value), {"a": torch.ones(2)})
        assert total.tolist() == [value + 1] * 2
        assert rest["twice"].tolist() == [2 * value] * 2
    assert calls == ["run", False]


def test_what_cannot_be_traced_is_called_and_said(caplog):
    def function(x):
        return x * float(x.sum())  # a number that the list would hold fast

    with caplog.at_level("WARNING", logger="creditscope"):
        traced = Traced(function)
        assert [traced(torch.full((2,), value)).tolist() for value in (1.0, 2.0)] == [[2.0, 2.0], [8.0, 8.0]]
    assert [record.getMessage() for record in caplog.records] == [
        "tracing failed (RuntimeError): these runs train untraced, and slower"
    ]


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
