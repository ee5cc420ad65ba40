"""ρ and nudge: by plain loops over the unmodified module, and by what they must do at first order."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.models import cross_entropy, resmlp
from cases.snapshots import conv_snapshot, in_run_dtype, mlp_snapshot, snapshot_of, vit_snapshot
from torch import nn

from creditscope.blocks import view_signal
from creditscope.errors import NotMeasured
from creditscope.models.resmlp import ResMLP
from creditscope.probes import perturbation
from creditscope.probes.perturbation import NudgeProbe, RhoProbe
from creditscope.probes.seeds import gaussian, probe_generator
from creditscope.rules.backprop import Backprop


def tail(model: nn.Module, level: int, h: torch.Tensor) -> torch.Tensor:
    for block in model.blocks[level:]:
        h = block(h)
    return model.head(model.out_ln(h))


def states(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    out = [model.embed(x)]
    for block in model.blocks:
        out.append(block(out[-1]))
    return out


@torch.no_grad()
def test_rho_one_pair_after_the_other() -> None:
    snapshot = mlp_snapshot("dfa", n=7)
    model, (x, y) = resmlp(), snapshot.probe
    got = RhoProbe(3).measure(snapshot).values["rho"]
    for level, h in enumerate(states(model, x)):
        generator = probe_generator(snapshot.seed, snapshot.epoch, f"rho/{level}")
        noise = gaussian((7, 6), generator)
        v = gaussian((7, 3, 6), generator)
        step = 1e-3 * float(np.median(h.norm(dim=1).numpy()))
        rows = []
        for i in range(7):
            for m in range(3):
                direction = v[i, m] / v[i, m].norm()
                before, after = (
                    float(cross_entropy(tail(model, level, z.unsqueeze(0)), y[i : i + 1]))
                    for z in (h[i], h[i] + step * direction)
                )
                signals = (snapshot.delivered[level][i], snapshot.observation.references[level][i], noise[i])
                rows.append([after - before, *(float(step * direction @ s) for s in signals)])
        expected = np.corrcoef(np.array(rows).T)[0, 1:]
        found = [row[level] for row in (got.credit, got.control, got.random)]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        assert got.epsilon[level] == pytest.approx(step)
    assert got.directions == 3


def test_rho_of_the_gradient_is_near_one_and_of_noise_near_zero() -> None:
    got = RhoProbe(64).measure(mlp_snapshot("dfa", n=64)).values["rho"]
    assert min(got.control) > 0.98
    assert max(abs(v) for v in got.random) < 4 / math.sqrt(64 * 64)


def test_bp_has_the_controls_own_rho() -> None:
    got = RhoProbe(4).measure(mlp_snapshot("bp")).values["rho"]
    assert got.credit == got.control


@pytest.mark.parametrize("method", ["dfa", "fa-block", "fa"])
def test_rho_is_a_norm_weighted_cosine_at_first_order(method: str) -> None:
    snapshot = mlp_snapshot(method, n=64)
    got = RhoProbe(64).measure(snapshot).values["rho"]
    for level in range(4):
        c, g = snapshot.delivered[level], snapshot.observation.references[level]
        weighted = float((c * g).sum() / (c.square().sum() * g.square().sum()).sqrt())
        assert got.credit[level] == pytest.approx(weighted, abs=4 / math.sqrt(64 * 64))


def test_chunks_of_samples_make_no_difference_but_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = mlp_snapshot("dfa", n=64)
    whole = RhoProbe(32).measure(snapshot).values["rho"]
    monkeypatch.setattr(perturbation, "ENTRIES", 32 * 6 * 5)
    parts = RhoProbe(32).measure(snapshot).values["rho"]
    np.testing.assert_allclose(parts.credit, whole.credit, atol=0.2)
    np.testing.assert_allclose(parts.control, whole.control, atol=0.02)


def test_a_large_float32_stream_is_still_measured_in_float64() -> None:
    # Mistake 12: with an absolute step in float32, ρ of the true gradient drops and many loss changes are exactly 0.
    torch.manual_seed(0)
    model = ResMLP((5,), 4, width=32, depth=2)
    with torch.no_grad():
        model.embed.weight.mul_(1e6)
    snapshot = snapshot_of(model, Backprop(), (5,), 4, n=40)
    assert min(RhoProbe(16).measure(snapshot).values["rho"].control) > 0.98

    h, g = snapshot.observation.states[0], snapshot.observation.references[0]
    v = torch.randn(40, 32, generator=torch.Generator().manual_seed(1))
    v = v / v.norm(dim=1, keepdim=True)
    with torch.no_grad():
        before, after = (cross_entropy(tail(model, 0, z), snapshot.probe.y) for z in (h, h + 1e-3 * v))
    change = (after - before).numpy()
    assert (change == 0).mean() > 0.3
    correlation = np.corrcoef(change, (g * v).sum(1).numpy())[0, 1] if change.any() else 0.0
    assert abs(correlation) < 0.9


@torch.no_grad()
def test_nudge_one_sample_after_the_other() -> None:
    snapshot = mlp_snapshot("dfa", n=7)
    model, (x, y) = resmlp(), snapshot.probe
    got = NudgeProbe().measure(snapshot).values["nudge"]
    for level, h in enumerate(states(model, x)):
        size = 1e-2 * float(np.median(h.norm(dim=1).numpy()))
        noise = gaussian((7, 6), probe_generator(snapshot.seed, snapshot.epoch, f"nudge/{level}"))
        signals = (snapshot.delivered[level], snapshot.observation.references[level], noise)
        expected = []
        for signal in signals:
            moved = torch.stack([a - size * s / s.norm() for a, s in zip(h, signal, strict=True)])
            change = cross_entropy(tail(model, level, moved), y) - cross_entropy(tail(model, level, h), y)
            expected.append(float(change.mean()))
        found = [row[level] for row in (got.credit, got.reference, got.random)]
        np.testing.assert_allclose(found, expected, rtol=1e-8)
        assert got.efficiency[level] == pytest.approx(expected[0] / expected[1])
    assert got.eta == 1e-2


def test_a_step_against_the_gradient_lowers_the_loss() -> None:
    got = NudgeProbe().measure(mlp_snapshot("bp", n=64)).values["nudge"]
    assert max(got.reference) < 0
    assert got.credit == got.reference
    assert got.efficiency == [1.0] * 4


def test_samples_without_a_direction_are_left_out_of_all_three() -> None:
    snapshot = mlp_snapshot("dfa", n=8)
    silent = replace(snapshot, state={name: torch.zeros_like(b) for name, b in snapshot.state.items()})
    nudge = NudgeProbe().measure(silent).values["nudge"]
    assert nudge.credit == nudge.reference == nudge.efficiency == [None] * 4
    assert RhoProbe(4).measure(silent).values["rho"].credit == [None] * 4


def test_without_saved_credit_the_controls_are_measured_and_the_gap_is_named() -> None:
    # Mistakes 5 and 6: never a self-cosine in place of a credit that was not saved.
    snapshot = replace(mlp_snapshot("dfa"), rule=None, state={})
    for probe, name in ((RhoProbe(8), "rho"), (NudgeProbe(), "nudge")):
        got = probe.measure(snapshot)
        assert got.values[name].credit == [None] * 4
        assert got.not_measured[f"{name}.credit"].startswith("no-credit-saved")
    assert min(RhoProbe(8).measure(snapshot).values["rho"].control) > 0.9
    assert max(NudgeProbe().measure(snapshot).values["nudge"].reference) < 0


@pytest.mark.parametrize("view", ["cls", "mean", "all"])
def test_token_streams_in_every_view(view: str) -> None:
    snapshot = vit_snapshot("dfa", view, n=48)
    rho = RhoProbe(32).measure(snapshot).values["rho"]
    assert min(v for v in rho.control if v is not None) > 0.98
    for level in range(3):
        c, g = (view_signal(s[level], view) for s in (snapshot.delivered, snapshot.observation.references))
        if view == "all" and level == 2:
            c, g = c[:, :8], g[:, :8]  # after the last block only the class token reaches the loss
        if view == "mean" and level == 2:
            c = snapshot.delivered[level][:, 0]
        weighted = float((c * g).sum() / (c.square().sum() * g.square().sum()).sqrt())
        assert rho.credit[level] == pytest.approx(weighted, abs=4 / math.sqrt(48 * 32))
    nudge = NudgeProbe().measure(snapshot).values["nudge"]
    assert max(nudge.reference) < 0


def test_feature_maps() -> None:
    snapshot = conv_snapshot("dfa", n=32)
    rho = RhoProbe(16).measure(snapshot).values["rho"]
    assert min(rho.control) > 0.95
    assert max(NudgeProbe().measure(snapshot).values["nudge"].reference) < 0


def test_no_directions_is_not_measured() -> None:
    with pytest.raises(NotMeasured, match="at least one direction"):
        RhoProbe(0).measure(mlp_snapshot("dfa"))


def test_a_float32_run_gives_the_float64_value() -> None:
    snapshot = mlp_snapshot("dfa")
    low, high = (RhoProbe(8).measure(s).values["rho"].credit for s in (in_run_dtype(snapshot, torch.float32), snapshot))
    np.testing.assert_allclose(low, high, atol=1e-5)
