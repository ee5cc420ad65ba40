"""Fidelity, clamp onset and drift on whole networks, against plain backward passes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.models import cross_entropy, resmlp
from cases.snapshots import in_run_dtype, mlp_snapshot, snapshot_of, vit_snapshot
from torch import nn

from creditscope.blocks import Batch
from creditscope.errors import NotMeasured
from creditscope.models.resmlp import ResMLP
from creditscope.probes.reference import ClampProbe, DriftProbe, FidelityProbe
from creditscope.rules.backprop import Backprop


def plain_references(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """g_0..g_L of a ResMLP by retained gradients, one sample after the other."""
    rows = []
    for i in range(len(x)):
        states = [model.embed(x[i : i + 1])]
        for block in model.blocks:
            states[-1].retain_grad()
            states.append(block(states[-1]))
        states[-1].retain_grad()
        cross_entropy(model.head(model.out_ln(states[-1])), y[i : i + 1]).sum().backward()
        rows.append([h.grad[0] for h in states])
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def loaded(snapshot, dtype: torch.dtype) -> nn.Module:
    model = resmlp().to(dtype)
    model.load_state_dict({name: p.to(dtype) for name, p in snapshot.params.items()})
    return model


def test_fidelity_of_float32_by_two_plain_backward_passes() -> None:
    snapshot = in_run_dtype(mlp_snapshot("bp"), torch.float32)
    got = FidelityProbe().measure(snapshot).values["fidelity"]
    x, y = snapshot.probe
    low, high = (plain_references(loaded(snapshot, d), x.to(d), y) for d in (torch.float32, torch.float64))
    assert got.dtype == "float32"
    assert got.n_zero == [0] * 4
    for level in range(4):
        a, b = low[level].double().numpy(), high[level].numpy()
        gap = ((a / np.linalg.norm(a, axis=1)[:, None] - b / np.linalg.norm(b, axis=1)[:, None]) ** 2).sum(1) / 2
        # Two float32 passes round differently: the same order of magnitude is all there is.
        assert 0 < 1 - got.median[level] < 1e-12
        assert np.median(gap) / 30 < got.error[level] ** 2 / 2 < np.median(gap) * 30


def test_fidelity_of_a_float64_run_is_one() -> None:
    got = FidelityProbe().measure(mlp_snapshot("bp")).values["fidelity"]
    assert got.median == got.confident == [1.0] * 4
    assert got.error == [0.0] * 4


def stream_of(scale: float, dtype: torch.dtype):
    """A run in a small dtype whose stream has entries of the given size."""
    torch.manual_seed(0)
    model = ResMLP((5,), 4, width=32, depth=2)
    with torch.no_grad():
        model.embed.weight.mul_(scale)
        model.embed.bias.mul_(scale)
    return snapshot_of(model.to(dtype), Backprop(), (5,), 4, n=40)


def test_fp16_overflow_in_the_forward_pass_is_seen() -> None:
    # Mistake 4: past 65,504 per element nothing is left of the gradient.
    got = FidelityProbe().measure(stream_of(1e5, torch.float16)).values["fidelity"]
    assert got.median == [0.0] * 3
    assert got.error == [1.0] * 3
    fine = FidelityProbe().measure(stream_of(1.0, torch.float16)).values["fidelity"]
    assert min(fine.median) > 0.999


def test_bf16_keeps_the_direction_of_a_large_stream() -> None:
    got = FidelityProbe().measure(stream_of(1e6, torch.bfloat16)).values["fidelity"]
    assert 0.999 < min(got.median) < 1


def test_the_most_confident_samples_are_looked_at_alone() -> None:
    snapshot = stream_of(1.0, torch.float16)
    params = dict(snapshot.params)
    params["head.weight"] = params["head.weight"] * 25  # p − 1 cancels in fp16 where the output is sure
    sure = replace(snapshot, params=params)
    sure = replace(sure, probe=Batch(snapshot.probe.x, sure.observation.logits.argmax(1)))
    got = FidelityProbe().measure(sure).values["fidelity"]
    assert got.confident == [0.0] * 3
    assert min(got.median) > 0.5
    assert min(got.n_zero) >= 4


def test_regression_targets_have_no_confidence() -> None:
    snapshot = mlp_snapshot("bp")
    target = torch.randn(len(snapshot.probe.y), 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    task = snapshot.task._replace(loss=lambda out, y: (out - y).square().sum(1))
    got = FidelityProbe().measure(replace(snapshot, task=task, probe=Batch(snapshot.probe.x, target)))
    assert got.values["fidelity"].confident is None


def test_a_diverged_run_is_not_measured() -> None:
    snapshot = mlp_snapshot("bp")
    params = dict(snapshot.params) | {"embed.bias": torch.full_like(snapshot.params["embed.bias"], torch.nan)}
    with pytest.raises(NotMeasured, match="state 0 is not finite"):
        FidelityProbe().measure(replace(snapshot, params=params))


def test_clamp_onset_by_plain_backward() -> None:
    snapshot = mlp_snapshot("dfa")
    norms = [g.norm(dim=1) for g in plain_references(loaded(snapshot, torch.float64), *snapshot.probe)]
    got = ClampProbe().measure(snapshot).values["clamp"]
    onset = [np.median(n.numpy()) / 1e-8 for n in norms]
    np.testing.assert_allclose(got.onset, onset, rtol=1e-9)
    assert list(got.shrink) == ["128", "1024", "2048"]
    np.testing.assert_allclose(got.shrink["1024"], np.maximum(1, 1024 / np.array(onset)), rtol=1e-9)


def test_drift_at_the_middle_state_by_pairs_of_samples() -> None:
    snapshot = mlp_snapshot("dfa")
    g = plain_references(loaded(snapshot, torch.float64), *snapshot.probe)[1].numpy()
    pairs = [g[i] @ g[j] for i in range(len(g)) for j in range(len(g)) if i != j]
    s = np.mean(pairs) / np.trace(np.cov(g.T))
    got = DriftProbe().measure(snapshot).values["drift"]
    assert got.state == 1  # ⌊3/2⌋
    assert got.s == pytest.approx(s, rel=1e-9)
    assert got.at_128 == pytest.approx(max(s, 0) / (max(s, 0) + 1 / 128), rel=1e-9)


def test_drift_of_equal_samples_is_one_and_of_zero_gradients_undefined() -> None:
    snapshot = mlp_snapshot("dfa")
    same = Batch(snapshot.probe.x[:1].expand(6, -1), snapshot.probe.y[:1].expand(6))
    assert DriftProbe().measure(replace(snapshot, probe=same)).values["drift"].at_128 == pytest.approx(1)
    flat = dict(snapshot.params) | {"head.weight": torch.zeros_like(snapshot.params["head.weight"])}
    with pytest.raises(NotMeasured, match="zero for every sample"):
        DriftProbe().measure(replace(snapshot, params=flat))
    with pytest.raises(NotMeasured, match="at least 3"):
        DriftProbe().measure(replace(snapshot, probe=Batch(*(v[:2] for v in snapshot.probe))))


@pytest.mark.parametrize("view", ["cls", "mean", "all"])
def test_token_streams_in_every_view(view: str) -> None:
    snapshot = vit_snapshot("bp", view)
    g = snapshot.observation.references
    vectors = {"cls": g[1][:, 0], "mean": g[1].sum(1), "all": g[1].flatten(1)}[view]
    clamp = ClampProbe().measure(snapshot).values["clamp"]
    assert clamp.onset[1] == pytest.approx(np.median(vectors.norm(dim=1).numpy()) / 1e-8)
    assert min(FidelityProbe().measure(snapshot).values["fidelity"].median) == 1


def test_the_probe_batch_size_does_not_enter_any_norm() -> None:
    # Mistake 8: one floor for gradients that were divided by different batch sizes.
    snapshot = mlp_snapshot("dfa")
    onsets = [ClampProbe().measure(replace(snapshot, batch=size)).values["clamp"].onset for size in (1, 10, 24)]
    np.testing.assert_allclose(onsets[0], onsets[1], rtol=1e-9)
    np.testing.assert_allclose(onsets[0], onsets[2], rtol=1e-9)
