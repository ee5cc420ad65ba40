"""What would settle an open check never asks for less than was done."""

import numpy as np
import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.checks.seeds import needed_text
from creditscope.protocol.margins import Side, margin


def side(correct):
    """Three seeds that agree on every image, of which so many are right."""
    score = np.tile(np.arange(100) < correct, (3, 1)).astype(float)
    return Side(tuple(score.mean(axis=1).tolist()), (1, 2, 3), score, 100)


def test_seeds_that_agree_need_more_images_only():
    # 13 images of 100 are right on one side alone: variance of the margin .13·.87/99; half of the gap is left to it.
    found = margin(side(53), side(40))
    variance = 0.13 * 0.87 / 99
    assert found.image_variance == pytest.approx(variance)
    images = int(np.ceil(100 * 2 * 1.959964**2 * variance / (0.13 - 0.12) ** 2))
    assert needed_text(found, 0.12, "of the run") == f"test the 3 seeds of the run on about {images:,} images"


def test_seeds_that_differ_are_asked_for_more_seeds():
    # sd .02, gap .01: t(.975, 17)·.02/√18 = .00994. At the 80 % limit, sd·√(2/.4463): t(.975, 71)·.0423/√72 = .00995.
    found = margin(Side((0.40, 0.42, 0.44), (1, 2, 3)), 0.39)
    assert needed_text(found, 0.02, "of the run") == "train about 18 to 72 seeds of the run"


def test_blocks_that_the_null_alone_leaves_open_need_at_least_one_seed_more():
    logs = []
    for log in cases.cell("dfa", cases.ALIGNED):
        wide = np.random.default_rng(0).normal(0, 0.4, (5, cases.K))
        test = cases.null(log.probes[-1].null.observed, wide)
        logs.append(cases.edit(log, null=test))
    (claim,) = audit(logs).claims
    direction = next(outcome for outcome in claim.outcomes if outcome.name == "direction")
    assert "cannot be told from the null" in direction.reason
    assert direction.settles == "train more seeds, about 4 in all"
