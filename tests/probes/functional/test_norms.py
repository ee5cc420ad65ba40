import numpy as np
import pytest
import torch
from scipy import stats

from creditscope.probes.functional.norms import median_rank, norm_stats, vector_norms


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 8, 100, 128, 129, 1024])
def test_quantiles_are_numpys(n: int) -> None:
    norms = np.random.default_rng(n).lognormal(size=(3, 2, n))
    got = norm_stats(torch.tensor(norms))
    np.testing.assert_allclose(got.median, np.median(norms, -1), rtol=1e-14)
    np.testing.assert_allclose(got.q05, np.quantile(norms, 0.05, axis=-1), rtol=1e-13)
    np.testing.assert_allclose(got.q95, np.quantile(norms, 0.95, axis=-1), rtol=1e-13)
    assert bool(((got.low <= got.median) & (got.median <= got.high)).all())


@pytest.mark.parametrize("n", [6, 7, 20, 128, 129, 1000, 1024])
def test_interval_of_the_median_is_the_narrowest_order_interval_with_95_percent(n: int) -> None:
    rank = median_rank(n)
    assert 1 - 2 * stats.binom.cdf(rank, n, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(rank + 1, n, 0.5) < 0.95
    ordered = np.sort(np.random.default_rng(0).normal(size=n) ** 2)
    got = norm_stats(torch.tensor(ordered).flip(0))
    assert (float(got.low), float(got.high)) == (ordered[rank], ordered[n - 1 - rank])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_samples_give_the_whole_range(n: int) -> None:
    got = norm_stats(torch.arange(n))
    assert (float(got.low), float(got.high)) == (0, n - 1)


def test_interval_is_near_a_drawn_bootstrap() -> None:
    rng = np.random.default_rng(1)
    norms = rng.lognormal(size=1024)
    medians = np.median(norms[rng.integers(0, 1024, size=(2000, 1024))], axis=1)
    got = norm_stats(torch.tensor(norms))
    ranks = [np.searchsorted(np.sort(norms), v) for v in np.quantile(medians, [0.025, 0.975])]
    exact = [np.searchsorted(np.sort(norms), float(v)) for v in (got.low, got.high)]
    assert np.abs(np.subtract(ranks, exact)).max() <= 4


def test_interval_covers_the_true_median() -> None:
    norms = np.random.default_rng(2).exponential(size=(4000, 128))
    got = norm_stats(torch.tensor(norms))
    covered = float(((got.low <= np.log(2)) & (np.log(2) <= got.high)).double().mean())
    assert 0.94 < covered < 0.98


def test_infinite_norms_stay_infinite_and_nan_makes_all_nan() -> None:
    infinite = norm_stats(torch.tensor([1.0, torch.inf, torch.inf, torch.inf, torch.inf, torch.inf, torch.inf]))
    assert float(infinite.median) == float(infinite.q95) == float(infinite.high) == torch.inf
    broken = norm_stats(torch.tensor([[1.0, torch.nan, 2.0], [1.0, 2.0, 3.0]]))
    assert all(bool(value[0].isnan()) for value in broken)
    assert [float(value[1]) for value in broken] == pytest.approx([2, 1.1, 2.9, 1, 3])


def test_norm_of_a_vector_is_not_the_norm_of_order_minus_one() -> None:
    # Mistake 1: tensor.norm(-1) is one number, an order −1 norm.
    vectors = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
    assert vector_norms(vectors).tolist() == [5, 10]
    assert vectors.norm(-1).ndim == 0


def test_norm_of_float32_vectors_does_not_overflow_or_underflow() -> None:
    tiny, large = torch.full((1, 4), 1e-30), torch.full((1, 4), 1e30)
    assert float(vector_norms(tiny)) == pytest.approx(2e-30, rel=1e-6)
    assert float(vector_norms(large)) == pytest.approx(2e30, rel=1e-6)
