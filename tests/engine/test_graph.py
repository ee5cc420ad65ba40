"""The CUDA graph: what its warm-ups change is undone, and on a device it trains as the CPU does."""

from types import SimpleNamespace

import pytest
import torch
from cases import fleets
from cases.fleets import features, images, spec

from creditscope.engine import graph
from creditscope.engine.checkpoint import FleetState, read_checkpoint, restore
from creditscope.engine.fleet import Fleet
from creditscope.execution.local import train
from creditscope.records import ProbeSpec

RUNS = [
    spec(method, images(), seed=seed, augment="crop4+flip", targets=targets, dtype="float32")
    for method, seed, targets in (
        *(("bp", 1, "labels"), ("bp+pen0.1", 2, "random"), ("fa", 1, "labels"), ("fa-block@last1", 1, "labels")),
        *(("dfa-rms", 1, "labels"), ("dfa-rms@frozen", 2, "labels")),
    )
]


def test_every_tensor_that_a_step_changes_is_put_back(monkeypatch):
    """The graph's path on the CPU, with two warm-up steps and a plain replay."""

    def record(step, live):
        kept = [tensor.clone() for tensor in live]
        for _ in range(2):
            step()
            for tensor, old in zip(live, kept, strict=True):
                tensor.copy_(old)
        return SimpleNamespace(replay=step), None

    plain, plain_losses = fleets.trained(RUNS, data=images())
    monkeypatch.setattr(graph, "records", lambda device: True)
    monkeypatch.setattr(graph, "capture", record)
    recorded, losses = fleets.trained(RUNS, data=images())
    assert torch.equal(torch.stack(losses), torch.stack(plain_losses))
    assert all(torch.equal(recorded.params[name], p) for name, p in plain.params.items())
    assert all(torch.equal(recorded.optimiser.second[name], v) for name, v in plain.optimiser.second.items())
    assert recorded.optimiser.steps.tolist() == plain.optimiser.steps.tolist() == [20] * len(RUNS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_twenty_steps_are_those_of_the_cpu(tmp_path):
    cpu, _ = fleets.trained(RUNS, data=images())
    cuda = Fleet(RUNS, images(), fleets.default_model, torch.device("cuda"))
    assert cuda.path == "graph"
    for epoch in range(1, 5):
        cuda.train_epoch(epoch)
        if epoch == 2:
            FleetState(cuda, 2).save(tmp_path)
    for name, p in cpu.params.items():
        torch.testing.assert_close(cuda.params[name].cpu(), p, rtol=1e-3, atol=1e-4)
    resumed = Fleet(RUNS, images(), fleets.default_model, torch.device("cuda"))
    assert restore(resumed, tmp_path).epoch == 2
    for epoch in (3, 4):
        resumed.train_epoch(epoch)
    for name, p in cuda.params.items():
        torch.testing.assert_close(resumed.params[name], p, rtol=1e-4, atol=1e-5)


def test_features_are_enough_for_a_graph(monkeypatch):
    """Without crops the buffers hold the order alone."""
    monkeypatch.setattr(graph, "records", lambda device: True)
    monkeypatch.setattr(graph, "capture", lambda step, live: (SimpleNamespace(replay=step), None))
    made, _ = fleets.trained([spec("bp")], epochs=1, data=features())
    assert float(made.optimiser.steps) == 5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_what_is_written_down_is_that_of_the_cpu(tmp_path):
    """Fleets side by side, each asked for the next epoch before the last is written: rows stay those of their epoch."""
    runs = [
        spec(method, images(), augment="crop4+flip", depth=depth, probe=ProbeSpec(n=16, epochs=(0, 2), redraws=19))
        for method in ("bp", "fa", "dfa-rms", "dfa-rms@frozen")
        for depth in (2, 3)
    ]
    card, host = (train(runs, tmp_path / where, data=images(), device=where) for where in ("cuda", "cpu"))
    for ours, theirs in zip(card, host, strict=True):
        assert [row.epoch for row in ours.probes] == [row.epoch for row in theirs.probes]
        for a, b in zip(ours.epochs, theirs.epochs, strict=True):
            assert a.test_loss == pytest.approx(b.test_loss, rel=1e-6)
            assert (a.train_loss or 0.0) == pytest.approx(b.train_loss or 0.0, rel=1e-6)
            assert a.hidden.median == pytest.approx(b.hidden.median, rel=1e-6)
        for a, b in zip(ours.probes, theirs.probes, strict=True):
            assert a.gradient_cosine == pytest.approx(b.gradient_cosine, abs=1e-6)
            assert (a.step_descent is None) == (a.epoch == 0)
            assert a.step_descent is None or a.step_descent == pytest.approx(b.step_descent, abs=1e-5)
        assert read_checkpoint(tmp_path / "cuda" / f"{ours.spec.run_id}.safetensors")[1]["epoch"] == "4"
