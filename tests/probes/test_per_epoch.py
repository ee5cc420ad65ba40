"""The per-epoch set against numpy: norms, gain, growth, both indexes of the cosine, every Γ, every status."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.snapshots import conv_snapshot, in_run_dtype, mlp_snapshot, vit_snapshot
from torch.func import vmap
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map

from creditscope.blocks import Batch
from creditscope.probes.epoch_cosines import SAMPLES, credit_numbers, samples_of
from creditscope.probes.per_epoch import (
    EpochNumbers,
    epoch_fields,
    epoch_numbers,
    joined,
    sample_numbers,
    snapshot_numbers,
    summarise,
)
from creditscope.records.rows import EpochRow

RULES = ("bp", "fa", "fa-block", "dfa", "dfa-rms")


def flat(tensors):
    return [t.double().flatten(1).numpy() for t in tensors]


def norms(vectors):
    return np.stack([np.sqrt((v**2).sum(1)) for v in vectors])


def cosines(c, g):
    return np.array([[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(x, y, strict=True)] for x, y in
                     zip(c, g, strict=True)])  # fmt: skip


def fields_of(snapshot, view=None):
    return epoch_fields(summarise(snapshot_numbers(replace(snapshot, view=view or snapshot.view))), snapshot.exact)


def seen_fields(snapshot, seen, clamp_at=128):
    """The fields of an observation that was tampered with; the run is float64, so its reference is its own."""
    g, view = seen.references, snapshot.view
    credit = credit_numbers(seen.delivered, g, g, view, snapshot.exact)
    return epoch_fields(summarise(EpochNumbers(sample_numbers(seen, view), credit), clamp_at), snapshot.exact)


def shifted(c, rule):
    """The published index: block l's credit at state l; a rule without feedback is paired with itself."""
    return c if rule == "bp" else [*c[1:], c[-1]]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [24, 25])
def test_every_number_against_numpy(rule, n):
    snapshot = mlp_snapshot(rule, n=n)
    seen = snapshot.observation
    fields = fields_of(snapshot)
    h, g, f, c = (flat(t) for t in (seen.states, seen.references, seen.branches, seen.delivered))
    e = np.linalg.norm(seen.error.numpy(), axis=1)
    for name, vectors in (("hidden", h), ("reference", g)):
        wanted, got = norms(vectors), fields[name]
        assert got.median == pytest.approx(np.median(wanted, 1))
        assert got.q05 == pytest.approx(np.quantile(wanted, 0.05, axis=1))
        assert got.q95 == pytest.approx(np.quantile(wanted, 0.95, axis=1))
        assert got.n == n
    assert fields["error"] == pytest.approx(np.median(e))
    assert fields["gain"] == pytest.approx(np.median(norms(g) / e, 1))
    assert fields["branch"] == pytest.approx(np.median(norms(f) / norms(h)[:-1], 1))
    median = np.median(norms(h), 1)
    assert fields["growth"] == pytest.approx(median[1:] / median[:-1])
    acting, published = cosines(c, g), cosines(shifted(c, rule), g)
    for name, wanted in (("cosine", acting), ("cosine_published", published)):
        assert fields[name].mean == pytest.approx(wanted.mean(1), abs=1e-12)
        assert fields[name].sd == pytest.approx(wanted.std(1), abs=1e-9)
        assert fields[name].n == [n] * 4
        assert fields[name].n_undefined == [0] * 4
    gamma, means = fields["gamma"], acting.mean(1)
    assert gamma.acting == pytest.approx(means.mean(), abs=1e-12)
    assert gamma.worst == pytest.approx(means.min(), abs=1e-12)
    assert gamma.published == pytest.approx(published.mean(1)[:-1].mean(), abs=1e-12)
    deep = {"bp": [], "fa-block": [2]}.get(rule, [2, 3])
    assert (gamma.deep is None) == (not deep)
    if deep:
        assert gamma.deep == pytest.approx(means[deep].mean(), abs=1e-12)


@pytest.mark.parametrize(
    ("rule", "acting", "published"),
    [
        ("bp", ["exact-by-construction"] * 4, ["exact-by-construction"] * 4),
        ("fa", ["ok"] * 4, ["ok"] * 4),
        ("fa-block", [*["ok"] * 3, "exact-by-construction"], [*["ok"] * 3, "exact-by-construction"]),
        ("dfa", ["ok"] * 4, ["ok"] * 4),
    ],
)
def test_statuses(rule, acting, published):
    fields = fields_of(mlp_snapshot(rule))
    assert fields["cosine"].status == acting
    assert fields["cosine_published"].status == published


def scaled(seen, factor):
    return seen._replace(references=tuple(g * factor for g in seen.references))


@pytest.mark.parametrize("factor", [1.0, 1e-6, 1e-9])
def test_the_clamped_twin_is_torchs_cosine_of_mean_reduced_gradients(factor):
    snapshot = mlp_snapshot("dfa", n=24)
    seen = scaled(snapshot.observation, factor)
    n = 128
    wanted = [
        float(functional.cosine_similarity(c / n, g / n, dim=1).mean())
        for c, g in zip(seen.delivered[1:], seen.references[:-1], strict=True)
    ]
    fields = seen_fields(snapshot, seen, clamp_at=n)
    assert fields["gamma"].clamped == pytest.approx(np.mean(wanted), rel=1e-9)
    unclamped = fields_of(snapshot)["gamma"].published
    assert fields["gamma"].published == pytest.approx(unclamped, rel=1e-9), "no eps in ours"
    if factor == 1e-9:
        assert abs(fields["gamma"].clamped) < 0.1 * abs(unclamped)


def test_zero_vectors_have_no_cosine_and_are_counted():
    snapshot = mlp_snapshot("dfa", n=24)
    seen = snapshot.observation
    g = [t.clone() for t in seen.references]
    g[1][:5] = 0
    g[3][:] = 0
    fields = seen_fields(snapshot, seen._replace(references=tuple(g)))
    acting = fields["cosine"]
    assert acting.status == ["ok", "ok", "ok", "zero-vector"]
    assert acting.n == [24, 19, 24, 0]
    assert acting.n_undefined == [0, 5, 0, 24]
    assert acting.mean[3] is None
    wanted = cosines(flat(seen.delivered)[1:2], flat(seen.references)[1:2])[0, 5:]
    assert acting.mean[1] == pytest.approx(wanted.mean())
    assert fields["gamma"].acting == pytest.approx(np.mean(acting.mean[:3]))


def test_tiny_norms_are_norms():
    snapshot = mlp_snapshot("dfa", n=24)
    tiny = snapshot.observation._replace(
        references=tuple(g * 1e-120 for g in snapshot.observation.references),
        delivered=tuple(c * 1e-120 for c in snapshot.observation.delivered),
    )
    fields = seen_fields(snapshot, tiny)
    assert fields["cosine"].mean == pytest.approx(fields_of(snapshot)["cosine"].mean, rel=1e-9)


def test_a_diverged_run_has_no_medians_and_no_cosines():
    snapshot = mlp_snapshot("dfa", n=24)
    seen = snapshot.observation
    broken = seen._replace(
        states=(*seen.states[:-1], seen.states[-1] * torch.nan),
        references=tuple(g * torch.nan for g in seen.references),
        error=seen.error * torch.nan,
    )
    fields = seen_fields(snapshot, broken)
    assert np.isnan(fields["hidden"].median[-1])
    assert np.isfinite(fields["hidden"].median[:-1]).all()
    assert np.isnan(fields["reference"].median).all()
    assert np.isnan(fields["gain"]).all()
    assert np.isnan(fields["error"])
    assert np.isnan(fields["growth"][-1])
    assert fields["cosine"].status == ["not measured"] * 4
    assert fields["cosine"].mean == [None] * 4
    assert fields["gamma"].model_dump() == dict.fromkeys(("acting", "deep", "worst", "published", "clamped"))
    EpochRow(epoch=1, **fields)


def test_one_bad_sample_is_not_averaged_away():
    snapshot = mlp_snapshot("dfa", n=24)
    g = [t.clone() for t in snapshot.observation.references]
    g[2][3, 0] = torch.inf
    fields = seen_fields(snapshot, snapshot.observation._replace(references=tuple(g)))
    assert fields["cosine"].status == ["ok", "ok", "not measured", "ok"]
    assert fields["cosine"].mean[2] is None


def test_a_fitted_sample_has_no_gain_and_does_not_spoil_the_others():
    """Where e is exactly zero, so is g: 0/0 says nothing about the gain of the rest."""
    snapshot = mlp_snapshot("dfa", n=24)
    seen = snapshot.observation
    fitted = torch.ones(24, 1, dtype=torch.float64)
    fitted[:6] = 0
    some = seen._replace(error=seen.error * fitted, references=tuple(g * fitted for g in seen.references))
    fields = seen_fields(snapshot, some)
    ratio = norms(flat(seen.references))[:, 6:] / np.linalg.norm(seen.error.numpy(), axis=1)[6:]
    assert fields["gain"] == pytest.approx(np.median(ratio, 1))


def test_without_credit_there_is_no_cosine():
    snapshot = replace(mlp_snapshot("dfa"), rule=None)
    fields = fields_of(snapshot)
    assert set(fields) == {"hidden", "reference", "error", "gain", "branch", "growth"}
    numbers = snapshot_numbers(snapshot).credit
    assert {part.shape for part in numbers} == {(4, 0)}


# Tokens


def live_cosine(c, g):
    """Over tokens whose reference is not zero for every sample."""
    live = (g != 0).any(axis=(0, 2))
    return np.array(
        [
            a[live].ravel() @ b[live].ravel() / np.linalg.norm(a[live]) / np.linalg.norm(b)
            for a, b in zip(c, g, strict=True)
        ]
    )


@pytest.mark.parametrize("rule", ["dfa", "fa", "fa-block"])
def test_tokens_that_cannot_reach_the_loss_are_left_out(rule):
    """The head reads the class token: at the last state every other token's g is zero by construction."""
    snapshot = vit_snapshot(rule, view="all")
    seen = snapshot.observation
    dead = (seen.references[-1] == 0).all(2).all(0)
    assert dead.tolist() == [False, True, True, True, True]
    fields = fields_of(snapshot)
    c, g = ([t.numpy() for t in ts] for ts in (seen.delivered, seen.references))
    assert fields["cosine"].mean == pytest.approx(
        [live_cosine(a, b).mean() for a, b in zip(c, g, strict=True)], abs=1e-12
    )
    published = [live_cosine(a, b).mean() for a, b in zip([*c[1:], c[-1]], g, strict=True)]
    assert fields["cosine_published"].mean == pytest.approx(published, abs=1e-12)
    if rule == "dfa":
        diluted = cosines([c[-1].reshape(12, -1)], [g[-1].reshape(12, -1)]).mean()
        assert abs(fields["cosine"].mean[-1]) == pytest.approx(abs(diluted) * 5**0.5, rel=1e-9)


def test_the_mean_view_sums_live_tokens():
    snapshot = vit_snapshot("dfa", view="mean")
    fields = fields_of(snapshot)
    c, g = snapshot.observation.delivered[-1].numpy(), snapshot.observation.references[-1].numpy()
    wanted = cosines([c[:, 0]], [g.sum(1)])
    assert fields["cosine"].mean[-1] == pytest.approx(wanted.mean())
    assert fields["hidden"].median == pytest.approx(
        [np.median(np.linalg.norm(h.mean(1).numpy(), axis=1)) for h in snapshot.observation.states]
    )


def test_the_class_token_alone():
    snapshot = vit_snapshot("dfa", view="cls")
    seen = snapshot.observation
    wanted = cosines([c[:, 0].numpy() for c in seen.delivered], [g[:, 0].numpy() for g in seen.references])
    assert fields_of(snapshot)["cosine"].mean == pytest.approx(wanted.mean(1), abs=1e-12)


# States of unequal shapes


def test_unequal_widths_are_not_measured_in_the_published_index():
    snapshot = conv_snapshot("dfa")
    seen = snapshot.observation
    shapes = [tuple(h.shape[1:]) for h in seen.states]
    assert len(set(shapes)) == 3
    fields = fields_of(snapshot)
    assert fields["cosine"].status == ["ok"] * 4
    wanted = [cosines([c], [g]).mean() for c, g in zip(flat(seen.delivered), flat(seen.references), strict=True)]
    assert fields["cosine"].mean == pytest.approx(wanted, abs=1e-12)
    pairs = [a == b for a, b in zip([*shapes[1:], shapes[-1]], shapes, strict=True)]
    assert fields["cosine_published"].status == ["ok" if pair else "not measured" for pair in pairs]
    assert [m is not None for m in fields["cosine_published"].mean] == pairs
    assert fields["gamma"].published is None
    assert fields["gamma"].clamped is None
    assert fields["gamma"].acting is not None


# Many runs at once


@pytest.mark.parametrize("view", ["all", "mean", "cls"])
def test_mapped_over_runs_each_is_as_if_alone(view):
    snapshot = vit_snapshot("dfa", view=view)
    other = {name: p * 1.1 for name, p in snapshot.params.items()}
    stacked = {name: torch.stack([p, other[name]]) for name, p in snapshot.params.items()}

    def look(params):
        return tree_leaves(epoch_numbers(snapshot.task, params, snapshot.rule, snapshot.state, snapshot.probe, view, 7))

    both = vmap(look)(stacked)
    for run, params in enumerate((snapshot.params, other)):
        for ours, alone in zip(both, look(params), strict=True):
            torch.testing.assert_close(ours[run], alone, rtol=1e-9, atol=1e-12)


def test_mapped_over_runs_with_unequal_widths():
    snapshot = conv_snapshot("dfa")

    def look(params):
        return tree_leaves(
            epoch_numbers(snapshot.task, params, snapshot.rule, snapshot.state, snapshot.probe, "flat", 7)
        )

    both = vmap(look)({name: torch.stack([p, p]) for name, p in snapshot.params.items()})
    for ours, alone in zip(both, look(snapshot.params), strict=True):
        torch.testing.assert_close(ours[1], alone, equal_nan=True)


def test_numbers_are_float64_whatever_the_run_is():
    numbers = snapshot_numbers(in_run_dtype(mlp_snapshot("dfa", n=6), torch.float32))
    assert {t.dtype for t in tree_leaves(numbers)} == {torch.float64}


def test_runs_on_a_leading_axis_are_summarised_as_if_alone():
    snapshots = [mlp_snapshot("dfa", n=24), mlp_snapshot("dfa-rms", n=24)]
    alone = [snapshot_numbers(s) for s in snapshots]
    norms = alone[1].norms
    alone[1] = alone[1]._replace(norms=norms._replace(error=norms.error * 0, reference=norms.reference * 0))
    both = summarise(joined([tree_map(lambda t: t[None], numbers) for numbers in alone], 0))
    for run, numbers in enumerate(alone):
        one = summarise(numbers)
        for ours, wanted in zip(both.hidden, one.hidden, strict=True):
            torch.testing.assert_close(ours[run], wanted)
        for name in ("error", "gain", "branch"):
            torch.testing.assert_close(getattr(both, name)[run], getattr(one, name), equal_nan=True)
        for ours, wanted in zip(both.credit.acting, one.credit.acting, strict=True):
            torch.testing.assert_close(ours[run], wanted, equal_nan=True)
        torch.testing.assert_close(both.credit.clamped[run], one.credit.clamped)


# In float64, on some of the samples


def crowded(n):
    """A run in float16 whose samples are all fitted but for rounding: p − 1 cancels in its own dtype."""
    sharp = mlp_snapshot("dfa", n=n)
    sharp = replace(sharp, params={name: 200 * p if name.startswith("head") else p for name, p in sharp.params.items()})
    fitted = Batch(sharp.probe.x, sharp.observation.logits.argmax(1))
    return in_run_dtype(replace(sharp, probe=fitted), torch.float16)


def test_cosines_are_those_of_the_float64_copy_and_the_dtype_is_held_against_the_reference():
    snapshot = crowded(40)
    fields = fields_of(snapshot)
    double = snapshot.in_dtype(torch.float64).observation
    wanted = [cosines([c], [g])[0] for c, g in zip(flat(double.delivered), flat(double.references), strict=True)]
    assert fields["cosine"].mean == pytest.approx([np.nanmean(each) for each in wanted], abs=1e-12)
    own = flat(snapshot.observation.references)
    sizes = [np.linalg.norm(g, axis=1) for g in own]
    inner = [(a * b).sum(1) / np.linalg.norm(b, axis=1) for a, b in zip(own, flat(double.references), strict=True)]
    phi = [np.median(np.where(n > 0, i / np.where(n > 0, n, 1), 0)) for n, i in zip(sizes, inner, strict=True)]
    assert min(phi) < 0.9999
    assert fields["cosine"].status == ["ok" if value >= 0.9999 else "below-fidelity" for value in phi]
    assert fields["hidden"].median == pytest.approx(np.median(norms(flat(snapshot.observation.states)), 1))


def test_a_faithful_dtype_is_said_to_be_fine():
    assert set(fields_of(in_run_dtype(mlp_snapshot("dfa"), torch.float32))["cosine"].status) == {"ok"}


def test_an_exact_credit_stays_exact_in_any_dtype():
    snapshot = crowded(12)
    snapshot = replace(snapshot, rule=mlp_snapshot("bp").rule, state={})
    assert fields_of(snapshot)["cosine"].status == ["exact-by-construction"] * 4


def test_credit_is_asked_of_the_first_samples_and_their_number_is_logged():
    assert SAMPLES == 256
    parts = [Batch(torch.zeros(n), torch.zeros(n)) for n in (100, 100, 100, 100)]
    assert samples_of(parts) == [100, 100, 56, 0]
    snapshot = replace(mlp_snapshot("dfa", n=300), batch=100)
    fields = fields_of(snapshot)
    assert fields["hidden"].n == 300
    assert fields["cosine"].n == [256] * 4
    assert fields["cosine"].n_undefined == [0] * 4
    seen = snapshot.observation
    wanted = cosines([c[:256] for c in flat(seen.delivered)], [g[:256] for g in flat(seen.references)]).mean(1)
    assert fields["cosine"].mean == pytest.approx(wanted, abs=1e-12)


def test_a_run_without_credit_beside_one_that_has_it_stays_without():
    with_it, without = mlp_snapshot("dfa"), replace(mlp_snapshot("dfa"), rule=None)
    parts = [tree_map(lambda t: t[None], snapshot_numbers(each)) for each in (with_it, without)]
    both = summarise(joined(parts, 0))
    own = [tree_map(lambda t, run=run: t[run] if isinstance(t, torch.Tensor) else t, both) for run in (0, 1)]
    assert epoch_fields(own[0], with_it.exact)["cosine"] == fields_of(with_it)["cosine"]
    assert "cosine" not in epoch_fields(own[1], without.exact, delivers=False)
