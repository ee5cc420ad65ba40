"""A traced fleet gives the values of one that calls its functions; a compiled one the same to rounding."""

import re

import pytest
import torch
from cases import fleets
from cases.fleets import METHODS, images, spec

from creditscope.engine import fleet as fleet_module
from creditscope.engine.fleet import Fleet
from creditscope.engine.traced import Traced

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
    assert all(isinstance(assign, Traced) for assign in traced._credit.values())
    assert not any(isinstance(assign, Traced) for assign in called._credit.values())
    torch.testing.assert_close(torch.stack(traced_losses), torch.stack(losses), rtol=1e-11, atol=0)
    for name, p in called.params.items():
        torch.testing.assert_close(traced.params[name], p, rtol=1e-9, atol=1e-12)


def test_only_long_training_is_traced():
    steps = fleets.fleet([spec("bp")]).steps_per_epoch
    enough = -(-fleet_module.WORTH_TRACING // steps)
    for epochs, wanted in ((enough - 1, False), (enough, True)):
        assert fleets.fleet([spec("bp", epochs=epochs)]).traced == wanted


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
    (said,) = [record.getMessage() for record in caplog.records if record.name == "creditscope"]
    assert re.fullmatch(r"tracing failed \(\w+\): these runs train untraced, and slower", said)


@pytest.mark.slow
def test_a_compiled_list_keeps_how_arguments_and_results_are_nested():
    def function(x, parts):
        return x + parts["a"], {"twice": 2 * x, "pair": (x.sin(), parts["b"].sum())}

    def args(value):
        return torch.full((2, 3), value), {"a": torch.ones(3), "b": torch.arange(4.0)}

    compiled = Traced(function, compiled=True)
    for value in (1.0, 2.0):
        torch.testing.assert_close(compiled(*args(value)), function(*args(value)))
