import math

import numpy as np
import pytest
import torch

from creditscope.probes.functional.drift import drift_at, drift_ratio


def by_loop(g: np.ndarray) -> float:
    """Means over pairs of different samples: the unbiased ‖μ‖² without any correction."""
    n = len(g)
    common = np.mean([g[i] @ g[j] for i in range(n) for j in range(n) if i != j])
    return common / np.trace(np.cov(g.T))


def test_ratio_and_jackknife_by_plain_loops() -> None:
    g = np.random.default_rng(0).normal(size=(9, 4)) + 0.7
    leave_one_out = np.array([by_loop(np.delete(g, i, axis=0)) for i in range(9)])
    se = math.sqrt(8 / 9 * ((leave_one_out - leave_one_out.mean()) ** 2).sum())
    got = drift_ratio(torch.tensor(g))
    assert float(got.s) == pytest.approx(by_loop(g), rel=1e-11)
    assert float(got.se) == pytest.approx(se, rel=1e-10)


@pytest.mark.parametrize("n", [16, 64, 512])
def test_the_ratio_does_not_depend_on_the_number_of_samples(n: int) -> None:
    rng = np.random.default_rng(n)
    mu = rng.normal(size=300)
    true = 0.05
    mu *= math.sqrt(true * 300) / np.linalg.norm(mu)
    values = [float(drift_ratio(torch.tensor(rng.normal(size=(n, 300)) + mu)).s) for _ in range(40)]
    assert np.mean(values) == pytest.approx(true, abs=4 * np.std(values) / math.sqrt(40) + 1e-3)


def test_the_standard_error_is_the_scatter() -> None:
    rng = np.random.default_rng(3)
    drawn = [drift_ratio(torch.tensor(rng.normal(size=(100, 20)) + 0.3)) for _ in range(200)]
    scatter = np.std([float(d.s) for d in drawn])
    assert np.mean([float(d.se) for d in drawn]) == pytest.approx(scatter, rel=0.2)


def test_tiny_gradients_are_as_good_as_large_ones() -> None:
    g = torch.tensor(np.random.default_rng(0).normal(size=(9, 4)) + 0.7)
    assert float(drift_ratio(g * 1e-200).s) == pytest.approx(float(drift_ratio(g).s), rel=1e-9)


def test_the_share_at_a_batch_size_is_clear_of_negative_estimates() -> None:
    assert float(drift_at(torch.tensor(1 / 128), 128)) == 0.5
    assert float(drift_at(torch.tensor(-0.001), 128)) == 0
    assert float(drift_at(torch.tensor(1e9), 128)) == pytest.approx(1)
