"""The per-epoch set against numpy: norms, gain, growth, both indexes of the cosine, every Γ, every status."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.models import batch_of, params_of, resmlp, seeded_generator, task_of
from cases.snapshots import conv_snapshot, mlp_snapshot, vit_snapshot
from torch.func import vmap
from torch.nn import functional

from creditscope.blocks import Observation, observe
from creditscope.probes.per_epoch import SampleNumbers, epoch_fields, sample_numbers, summarise
from creditscope.records.rows import EpochRow
from creditscope.rules.build import rule_named

RULES = ("bp", "fa", "fa-block", "dfa", "dfa-rms")


def flat(tensors):
    return [t.double().flatten(1).numpy() for t in tensors]


def norms(vectors):
    return np.stack([np.sqrt((v**2).sum(1)) for v in vectors])


def cosines(c, g):
    return np.array([[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(x, y, strict=True)] for x, y in
                     zip(c, g, strict=True)])  # fmt: skip


def fields_of(snapshot, view=None):
    numbers = sample_numbers(snapshot.observation, view or snapshot.view, snapshot.exact)
    return epoch_fields(summarise(numbers), snapshot.exact)


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
    fields = epoch_fields(summarise(sample_numbers(seen, "flat", snapshot.exact), clamp_at=n), snapshot.exact)
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
    fields = epoch_fields(
        summarise(sample_numbers(seen._replace(references=tuple(g)), "flat", snapshot.exact)), snapshot.exact
    )
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
    fields = epoch_fields(summarise(sample_numbers(tiny, "flat", snapshot.exact)), snapshot.exact)
    assert fields["cosine"].mean == pytest.approx(fields_of(snapshot)["cosine"].mean, rel=1e-9)


def test_a_diverged_run_has_no_medians_and_no_cosines():
    snapshot = mlp_snapshot("dfa", n=24)
    seen = snapshot.observation
    broken = seen._replace(
        states=(*seen.states[:-1], seen.states[-1] * torch.nan),
        references=tuple(g * torch.nan for g in seen.references),
        error=seen.error * torch.nan,
    )
    fields = epoch_fields(summarise(sample_numbers(broken, "flat", snapshot.exact)), snapshot.exact)
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
    fields = epoch_fields(
        summarise(sample_numbers(snapshot.observation._replace(references=tuple(g)), "flat", snapshot.exact)),
        snapshot.exact,
    )
    assert fields["cosine"].status == ["ok", "ok", "not measured", "ok"]
    assert fields["cosine"].mean[2] is None


def test_a_fitted_sample_has_no_gain_and_does_not_spoil_the_others():
    """Where e is exactly zero, so is g: 0/0 says nothing about the gain of the rest."""
    snapshot = mlp_snapshot("dfa", n=24)
    seen = snapshot.observation
    fitted = torch.ones(24, 1, dtype=torch.float64)
    fitted[:6] = 0
    some = seen._replace(error=seen.error * fitted, references=tuple(g * fitted for g in seen.references))
    fields = epoch_fields(summarise(sample_numbers(some, "flat", snapshot.exact)), snapshot.exact)
    ratio = norms(flat(seen.references))[:, 6:] / np.linalg.norm(seen.error.numpy(), axis=1)[6:]
    assert fields["gain"] == pytest.approx(np.median(ratio, 1))


def test_without_credit_there_is_no_cosine():
    snapshot = replace(mlp_snapshot("dfa"), rule=None)
    fields = fields_of(snapshot)
    assert set(fields) == {"hidden", "reference", "error", "gain", "branch", "growth"}
    numbers = sample_numbers(snapshot.observation, "flat", snapshot.exact)
    assert numbers.inner.shape == numbers.credit_published.shape == (0, 24)


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
        seen = observe(snapshot.task, params, snapshot.rule, snapshot.state, snapshot.probe)
        return sample_numbers(seen, view, snapshot.exact)

    both = vmap(look)(stacked)
    for run, params in enumerate((snapshot.params, other)):
        for ours, alone in zip(both, look(params), strict=True):
            torch.testing.assert_close(ours[run], alone, rtol=1e-9, atol=1e-12)


def test_mapped_over_runs_with_unequal_widths():
    snapshot = conv_snapshot("dfa")

    def look(params):
        seen = observe(snapshot.task, params, snapshot.rule, snapshot.state, snapshot.probe)
        return sample_numbers(seen, "flat", snapshot.exact)

    both = vmap(look)({name: torch.stack([p, p]) for name, p in snapshot.params.items()})
    for ours, alone in zip(both, look(snapshot.params), strict=True):
        torch.testing.assert_close(ours[1], alone, equal_nan=True)


def test_numbers_are_float64_whatever_the_run_is():
    model = resmlp().float()
    batch = batch_of((5,), 4, n=6)
    task = task_of(model, batch.x[:2].float())
    rule = rule_named("dfa")
    feedback = rule.init(task, params_of(model), seeded_generator())
    seen = observe(task, params_of(model), rule, feedback, batch._replace(x=batch.x.float()))
    assert isinstance(seen, Observation)
    numbers = sample_numbers(seen, "flat", rule.exact(3))
    assert isinstance(numbers, SampleNumbers)
    assert {t.dtype for t in numbers} == {torch.float64}


def test_runs_on_a_leading_axis_are_summarised_as_if_alone():
    snapshots = [mlp_snapshot("dfa", n=24), mlp_snapshot("dfa-rms", n=24)]
    alone = [sample_numbers(s.observation, "flat", s.exact) for s in snapshots]
    alone[1] = alone[1]._replace(error=alone[1].error * 0, reference=alone[1].reference * 0)
    both = summarise(SampleNumbers(*(torch.stack(column) for column in zip(*alone, strict=True))))
    for run, numbers in enumerate(alone):
        one = summarise(numbers)
        for ours, wanted in zip(both.hidden, one.hidden, strict=True):
            torch.testing.assert_close(ours[run], wanted)
        for name in ("error", "gain", "branch", "clamped"):
            torch.testing.assert_close(getattr(both, name)[run], getattr(one, name), equal_nan=True)
        for ours, wanted in zip(both.acting, one.acting, strict=True):
            torch.testing.assert_close(ours[run], wanted, equal_nan=True)
