"""Fresh-feedback nulls against a plain loop over redraws, and their calibration."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.models import assign, batch_of, seeded_generator
from cases.snapshots import conv_snapshot, in_run_dtype, mlp_snapshot, snapshot_of, vit_snapshot

from creditscope.blocks import Batch, published_index, view_signal
from creditscope.errors import NotMeasured
from creditscope.models.resmlp import ResMLP
from creditscope.probes import nulls
from creditscope.probes.gradient_null import GradientNull
from creditscope.probes.nulls import FeedbackNull, null_test, redraw
from creditscope.rules.build import rule_named


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean([x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(a, b, strict=True)]))


def one_by_one(snapshot, name: str, redraws: int):
    for rows, chunk in redraw(snapshot, name, redraws, 0):
        for index in range(rows.stop - rows.start):
            yield {key: stacked[index] for key, stacked in chunk.items()}


def by_loop(snapshot, redraws: int) -> tuple[np.ndarray, np.ndarray]:
    """(acting, published), one redraw after the other."""
    g = [view_signal(v, snapshot.view).numpy() for v in snapshot.observation.references]
    rows = []
    for feedback in one_by_one(snapshot, "null", redraws):
        signals = snapshot.rule.deliver(snapshot.task, snapshot.params, feedback, snapshot.probe)
        acting = [view_signal(c, snapshot.view).numpy() for c in signals]
        if snapshot.view == "all":
            acting[-1] = acting[-1] * (g[-1] != 0).any(0)  # dead tokens of the last state
        published = published_index(acting, snapshot.exact)
        rows.append([[cosine(c, v) for c, v in zip(s, g, strict=True)] for s in (acting, published)])
    values = np.array(rows)
    return values[:, 0], values[:, 1]


@pytest.mark.parametrize("method", ["dfa", "dfa-rms", "fa-block", "fa", "fa-exact-head"])
def test_every_redraw_is_what_the_rule_would_have_delivered(method: str) -> None:
    snapshot = mlp_snapshot(method)
    acting, published = by_loop(snapshot, 19)
    got = FeedbackNull(19, keep_draws=True).measure(snapshot).values
    own = [
        cosine(c.numpy(), g.numpy()) for c, g in zip(snapshot.delivered, snapshot.observation.references, strict=True)
    ]
    for name, expected in (("null", acting), ("null_published", published)):
        test = got[name]
        assert test.redraws == 19
        for level in range(4):
            if test.p[level] is None:
                assert test.draws[level] == []
                continue
            np.testing.assert_allclose(test.draws[level], expected[:, level], rtol=1e-9, atol=1e-12)
            beyond = (expected[:, level] >= test.observed[level]).sum()
            assert test.p[level] == pytest.approx((1 + beyond) / 20, abs=1e-15)
            assert test.mean[level] == pytest.approx(expected[:, level].mean(), abs=1e-12)
            assert test.sd[level] == pytest.approx(expected[:, level].std(ddof=1), rel=1e-9)
            if name == "null":
                assert test.observed[level] == pytest.approx(own[level], rel=1e-9)


def test_the_published_index_is_one_block_off() -> None:
    # Mistake 9: the two indices are different numbers; both are kept, each against its own null.
    snapshot = mlp_snapshot("dfa")
    got = FeedbackNull(9).measure(snapshot).values
    c, g = snapshot.delivered, snapshot.observation.references
    expected = [cosine(c[min(level + 1, 3)].numpy(), g[level].numpy()) for level in range(4)]
    np.testing.assert_allclose(got["null_published"].observed, expected, rtol=1e-9)
    assert abs(got["null"].observed[1] - got["null_published"].observed[1]) > 0.01


def test_states_that_do_not_depend_on_the_feedback_have_no_null() -> None:
    # Mistake 7: fa-block's last credit is exact; it must not lend its cosine of 1 to the others.
    got = FeedbackNull(9).measure(mlp_snapshot("fa-block")).values
    assert [p is None for p in got["null"].p] == [False, False, False, True]
    assert [p is None for p in got["null_published"].p] == [False, False, True, True]
    assert got["null"].observed[3] is got["null"].mean[3] is None


@pytest.mark.parametrize("view", ["cls", "mean", "all"])
@pytest.mark.parametrize("method", ["dfa", "fa"])
def test_token_streams_in_every_view(method: str, view: str) -> None:
    snapshot = vit_snapshot(method, view)
    acting, _ = by_loop(snapshot, 5)
    got = FeedbackNull(5, keep_draws=True).measure(snapshot).values["null"]
    np.testing.assert_allclose(np.array(got.draws).T, acting, rtol=1e-8, atol=1e-12)


def test_states_of_two_widths_have_no_published_pairing() -> None:
    snapshot = conv_snapshot("dfa")
    got = FeedbackNull(5).measure(snapshot).values
    assert all(p is not None for p in got["null"].p)
    widths = [math.prod(shape) for shape in snapshot.task.shapes]
    assert [p is None for p in got["null_published"].p] == [
        a != b for a, b in zip(widths, [*widths[1:], widths[-1]], strict=True)
    ]


def test_samples_in_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = mlp_snapshot("dfa-rms")
    whole = FeedbackNull(9, keep_draws=True).measure(snapshot).values["null"]
    monkeypatch.setattr(nulls, "_SAMPLES", 7)
    parts = FeedbackNull(9, keep_draws=True).measure(snapshot).values["null"]
    np.testing.assert_allclose(np.array(parts.draws), np.array(whole.draws), rtol=1e-11)


def test_redraws_in_parts_are_as_many_and_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = mlp_snapshot("dfa")
    monkeypatch.setattr(nulls, "_ENTRIES_CPU", 500)
    parts = list(redraw(snapshot, "null", 40, 0))
    assert [(rows.start, rows.stop) for rows, _ in parts] == [(i, min(i + 6, 40)) for i in range(0, 40, 6)]
    entries = torch.cat([chunk[key].flatten() for _, chunk in parts for key in chunk])
    assert float(entries.std()) == pytest.approx(0.5, rel=5 / math.sqrt(2 * len(entries)))  # 1/√4 classes
    got = FeedbackNull(40, keep_draws=True).measure(snapshot).values["null"]
    assert [len(set(draws)) for draws in got.draws] == [40] * 4


@pytest.mark.parametrize("method", ["dfa", "fa-block", "fa"])
def test_float32_draws_move_the_null_by_less_than_1e_minus_6(method: str) -> None:
    snapshot = in_run_dtype(mlp_snapshot(method, n=64, width=32), torch.float32)
    low = FeedbackNull(19, keep_draws=True).measure(snapshot).values["null"]
    high = FeedbackNull(19, keep_draws=True).measure(replace(snapshot.in_dtype(torch.float64))).values["null"]
    for a, b in zip(low.draws, high.draws, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    assert low.p == high.p


def test_on_a_fitted_net_where_float32_loses_the_error_draws_are_in_float64() -> None:
    snapshot = in_run_dtype(mlp_snapshot("dfa"), torch.float32)
    sure = dict(snapshot.params) | {"head.weight": snapshot.params["head.weight"] * 40}
    sure_of_itself = replace(snapshot, params=sure)
    right = replace(sure_of_itself, probe=Batch(snapshot.probe.x, sure_of_itself.observation.logits.argmax(1)))
    got = FeedbackNull(9, keep_draws=True).measure(right).values["null"]
    in_float64, _ = by_loop(in_run_dtype(right, torch.float64), 9)
    in_float32, _ = by_loop(right, 9)
    assert np.abs(in_float32 - in_float64).max() > 0.01
    np.testing.assert_allclose(np.array(got.draws).T, in_float64, rtol=0, atol=1e-6)


def test_exact_skips_bring_a_random_vector_null() -> None:
    snapshot = mlp_snapshot("fa-exact-head", n=64)
    quiet = {name: p * (0.1 if "branch.3" in name else 1) for name, p in snapshot.params.items()}
    got = FeedbackNull(199).measure(replace(snapshot, params=quiet)).values["null"]
    assert min(got.mean[:3]) > 0.1
    for level in range(3):
        g = replace(snapshot, params=quiet).observation.references[level].numpy()
        common = np.linalg.norm((g / np.linalg.norm(g, axis=1, keepdims=True)).mean(0))
        assert abs(got.random_vector_mean[level]) < 0.1 * common
        assert got.random_vector_sd[level] == pytest.approx(common / math.sqrt(6), rel=0.2)
    assert got.random_vector_mean[3] is None
    assert FeedbackNull(199).measure(mlp_snapshot("dfa")).values["null"].random_vector_mean is None


def test_what_cannot_be_redrawn_is_named() -> None:
    dfa, bp = mlp_snapshot("dfa"), mlp_snapshot("bp")
    cases = (
        (replace(dfa, rule=None, state={}), 9, "no-credit-saved"),
        (bp, 9, "exact-by-construction at every state"),
        (replace(dfa, init=None), 9, "parameters at initialisation"),
        (dfa, 0, "at least one redraw"),
    )
    for snapshot, redraws, reason in cases:
        for probe in (FeedbackNull(redraws), GradientNull(redraws)):
            with pytest.raises(NotMeasured, match=reason):
                probe.measure(snapshot)


def test_p_counts_ties_against_the_claim() -> None:
    null = torch.tensor([[0.0], [0.5], [0.5], [1.0]], dtype=torch.float64)
    assert null_test(torch.tensor([0.5], dtype=torch.float64), null, [False], False).p == [4 / 5]
    assert null_test(torch.tensor([2.0], dtype=torch.float64), null, [False], False).p == [1 / 5]
    undefined = null_test(torch.tensor([math.nan], dtype=torch.float64), null, [False], False)
    assert undefined.p == undefined.observed == [None]


def test_redraws_follow_the_seed_and_the_epoch() -> None:
    snapshot = mlp_snapshot("dfa")
    first = FeedbackNull(9, keep_draws=True)
    draws = first.measure(snapshot).values["null"].draws
    assert first.measure(mlp_snapshot("dfa")).values["null"].draws == draws
    for other in (replace(snapshot, seed=4), replace(snapshot, epoch=1)):
        assert first.measure(other).values["null"].draws != draws


def test_the_runs_own_feedback_is_not_among_the_redraws() -> None:
    snapshot = mlp_snapshot("dfa")
    for feedback in one_by_one(snapshot, "null", 3):
        assert not any(torch.equal(feedback[name], snapshot.state[name]) for name in feedback)


def trained(method: str, steps: int = 150):
    """A small net trained by its own feedback on separable classes: its first blocks align."""
    torch.manual_seed(0)
    rule = rule_named(method)
    centres = torch.randn(4, 8, generator=seeded_generator(0), dtype=torch.float64)
    snapshot = snapshot_of(ResMLP((8,), 4, width=16, depth=3).double(), rule, (8,), 4, n=64)
    params = dict(snapshot.params)
    for step in range(steps):
        noise = batch_of((8,), 4, 64, seed=step)
        batch = Batch(noise.x + centres[noise.y], noise.y)
        grads = assign(rule, snapshot.task, params, snapshot.state, batch, None).grads
        params = {name: p - 0.1 * grads[name] for name, p in params.items()}
    probe = batch_of((8,), 4, 64, seed=10_000)
    return replace(snapshot, params=params, probe=Batch(probe.x + centres[probe.y], probe.y))


def test_direction_is_calibrated_on_a_trained_net_and_has_power() -> None:
    snapshot = trained("dfa")
    got = FeedbackNull(999, keep_draws=True).measure(snapshot).values["null"]
    # Power: the net was trained through this very feedback, and the embedding's credit shows it.
    assert got.p[0] < 0.01
    # Level: feedback that the net never saw passes no more often than it may.
    others = replace(snapshot, seed=99)
    strangers = FeedbackNull(1000, keep_draws=True).measure(others).values["null"].draws
    for level in range(4):
        null = np.array(got.draws[level])
        p = (1 + (null[None] >= np.array(strangers[level])[:, None]).sum(1)) / 1000
        # 1 % ± three standard errors of 1,000 strangers and of a null of 999 draws.
        assert (p < 0.01).mean() < 0.01 + 3 * math.sqrt(0.01 * 0.99 * (1 / 1000 + 1 / 999))
        assert abs((p < 0.5).mean() - 0.5) < 3 * math.sqrt(0.25 * 2 / 1000)


def test_wrong_feedback_saved_does_not_pass() -> None:
    snapshot = trained("dfa")
    wrong = snapshot.rule.init(snapshot.task, snapshot.init, seeded_generator(123))
    p = FeedbackNull(199).measure(replace(snapshot, state=wrong)).values["null"].p
    assert min(p) > 0.01
