"""Credit rotated: against a plain loop over Haar matrices, its law above the width that is drawn, and its level."""

import numpy as np
import pytest
import torch
from cases.snapshots import mlp_snapshot
from scipy.stats import kstest, ortho_group

from creditscope.errors import NotMeasured
from creditscope.probes import rotation
from creditscope.probes.functional.cosine import cosines
from creditscope.probes.gradient_null import GradientNull
from creditscope.probes.nulls import FeedbackNull
from creditscope.probes.rotation import rotated_cosines, rotations
from creditscope.probes.seeds import probe_generator


def pairs(states=3, n=20, width=6, seed=0):
    """Credit and reference that share a direction, so that samples depend on each other."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, states, n, width, generator=generator, dtype=torch.float64)
    return list(drawn[0] + 2 * drawn[0, :, :1]), list(drawn[1] + drawn[1, :, :1])


def test_every_rotation_is_one_of_all_credits_together():
    credit, reference = pairs()
    credit[1][3] = 0
    got = rotated_cosines(credit, reference, 7, torch.Generator().manual_seed(5))
    for k, q in enumerate(rotations(7, 6, torch.Generator().manual_seed(5))):
        torch.testing.assert_close(q @ q.T, torch.eye(6, dtype=torch.float64))
        for state, (c, g) in enumerate(zip(credit, reference, strict=True)):
            value, defined = cosines(c @ q, g)
            assert float(got[k, state]) == pytest.approx(float(value[defined].mean()), abs=1e-12)


def test_the_matrices_are_haar_distributed():
    """The square of an entry is Beta(1/2, (d − 1)/2); a QR without its sign fix would bias the diagonal."""
    drawn = rotations(2000, 4, torch.Generator().manual_seed(1))
    theirs = ortho_group.rvs(4, size=2000, random_state=2)
    for at in ((0, 0), (1, 2), (3, 3)):
        assert kstest(drawn[:, at[0], at[1]].numpy(), theirs[:, at[0], at[1]]).pvalue > 1e-3
    assert kstest(torch.linalg.det(drawn).numpy(), np.linalg.det(theirs)).pvalue > 1e-3


@pytest.mark.parametrize("n", [40, 120])
def test_above_the_width_that_is_drawn_the_law_is_that_of_haar_matrices(n, monkeypatch):
    """Covariance over the states and quantiles, against matrices that are drawn after all; n on both sides of width."""
    credit, reference = pairs(n=n, width=80)
    law = rotated_cosines(credit, reference, 4000, torch.Generator().manual_seed(1))
    monkeypatch.setattr(rotation, "DRAWN", 80)
    drawn = rotated_cosines(credit, reference, 1500, torch.Generator().manual_seed(2))
    size = drawn.std(0)
    np.testing.assert_allclose(law.std(0), size, rtol=0.08)
    assert (law.mean(0).abs() < 5 * size / np.sqrt(4000)).all()
    np.testing.assert_allclose(np.cov(law.T.numpy()), np.cov(drawn.T.numpy()), atol=0.12 * float(size.max()) ** 2)
    for state in range(3):
        assert kstest(law[:, state].numpy(), drawn[:, state].numpy()).pvalue > 1e-3


def test_credit_in_another_space_has_no_null():
    credit, reference = pairs()
    found = rotated_cosines([credit[0][:, :4], *credit[1:]], reference, 5, torch.Generator())
    assert found[:, 0].isnan().all()
    assert found[:, 1:].isfinite().all()


@pytest.mark.parametrize("method", ["fg-act", "pc", "dtp", "state-bridge", "credit-bridge", "kp", "dkp", "wm"])
def test_credit_that_learned_or_was_never_drawn_is_rotated(method):
    snapshot = mlp_snapshot(method)
    got = FeedbackNull(19, keep_draws=True).measure(snapshot).values["null"]
    assert got.kind == "rotated credit"
    generator = probe_generator(snapshot.seed, snapshot.epoch, "rotations")
    wanted = rotated_cosines(snapshot.delivered, snapshot.observation.references, 19, generator)
    for level, exact in enumerate(snapshot.exact):
        if exact:
            assert got.p[level] is None
            continue
        own = float(cosines(snapshot.delivered[level], snapshot.observation.references[level])[0].mean())
        assert got.observed[level] == pytest.approx(own, rel=1e-9)
        np.testing.assert_allclose(got.draws[level], wanted[:, level], rtol=1e-9, atol=1e-12)
        assert got.p[level] == pytest.approx((1 + int((wanted[:, level] >= own).sum())) / 20)
    with pytest.raises(NotMeasured, match="learns or was never drawn"):
        GradientNull(19).measure(snapshot)


@pytest.mark.parametrize("method", ["dtp", "state-bridge", "credit-bridge", "kp"])
def test_feedback_that_stays_as_it_was_drawn_is_drawn_again(method):
    got = FeedbackNull(19).measure(mlp_snapshot(f"{method}@fixed-feedback")).values["null"]
    assert got.kind == "fresh feedback"
    assert all((p is None) == exact for p, exact in zip(got.p, mlp_snapshot(method).exact, strict=True))


def test_where_credit_knows_nothing_p_is_uniform():
    found = []
    for seed in range(200):
        credit, reference = pairs(states=1, n=10, seed=seed)
        own = float(cosines(credit[0], reference[0])[0].mean())
        draws = rotated_cosines(credit, reference, 99, torch.Generator().manual_seed(seed + 1000))
        found.append((1 + int((draws[:, 0] >= own).sum())) / 100)
    assert kstest(found, "uniform").pvalue > 1e-3
