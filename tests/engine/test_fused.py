"""A compiled fleet gives the values of the stacked one."""

import pytest
import torch
from cases import fleets
from cases.fleets import images, spec

from creditscope.engine.fleet import Fleet
from creditscope.engine.fused import Fused

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


def test_a_function_is_traced_once_for_its_shapes(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda traced, dynamic: calls.append(dynamic) or traced)

    def function(x, parts):
        calls.append("run")
        return x + parts["a"], {"twice": 2 * x}

    fused = Fused(function)
    for value in (1.0, 2.0):
        total, rest = fused(torch.full((2,), value), {"a": torch.ones(2)})
        assert total.tolist() == [value + 1] * 2
        assert rest["twice"].tolist() == [2 * value] * 2
    assert calls == ["run", False]
