"""Statistics against SciPy's own front doors and plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from creditscope.protocol.inference import (
    holm,
    image_standard_error,
    monte_carlo_p,
    paired,
    read_bits,
    sd_upper_limit,
    seeds_needed,
    seeds_needed_range,
    welch,
)

VALUES = st.lists(st.floats(-50, 50), min_size=2, max_size=6)


@given(VALUES)
def test_paired_interval(values):
    estimate = paired(values)
    mean, se = np.mean(values), stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, mean, se) if se > 0 else (mean, mean)
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx((mean, low, high), rel=1e-9, abs=1e-9)
    assert estimate.kind == "paired"


def test_one_seed_has_no_interval():
    estimate = paired([3.0])
    assert (estimate.mean, estimate.low, estimate.high, estimate.sd) == (3.0, -math.inf, math.inf, None)
    assert welch([3.0], [1.0, 2.0]).kind == "one seed"


def test_welch_interval_is_scipys():
    a, b = [61.2, 62.1, 60.5], [35.1, 35.9, 34.2, 35.5]
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    estimate = welch(a, b)
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert estimate.kind == "Welch"
    assert welch([1.0, 1.0], [0.5, 0.5]).low == 0.5


@pytest.mark.parametrize(("gap", "sd"), [(2.6, 1.5), (0.3, 1.0), (5.0, 0.1), (1.0, 3.3)])
def test_seeds_needed_is_the_smallest_n(gap, sd):
    n = 2
    while not stats.t.ppf(0.975, n - 1) * sd / math.sqrt(n) < gap:
        n += 1
    assert seeds_needed(gap, sd) == n


def test_seeds_needed_can_be_out_of_reach():
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1e-6, 1.0) is None
    assert seeds_needed(1.0, 0.0) == 2


def test_the_range_uses_the_upper_limit_of_s():
    values = [4.6, 7.4, 1.9]
    estimate = paired(values)
    s = np.std(values, ddof=1)
    upper = s * math.sqrt(2 / stats.chi2.ppf(0.2, 2))
    assert sd_upper_limit(float(s), 3) == pytest.approx(upper)
    gap = abs(np.mean(values) - 2.0)
    assert seeds_needed_range(estimate, 2.0) == (seeds_needed(gap, float(s)), seeds_needed(gap, upper))
    assert seeds_needed_range(paired([1.0]), 2.0) is None


def test_the_upper_limit_covers_80_percent():
    rng = np.random.default_rng(0)
    covered = np.mean([sd_upper_limit(float(np.std(x, ddof=1)), 5) >= 1 for x in rng.normal(size=(20_000, 5))])
    assert covered == pytest.approx(0.8, abs=0.01)


def test_monte_carlo_p_counts():
    draws = np.array([0.1, 0.2, 0.3, 0.3])
    assert [monte_carlo_p(x, draws) for x in (0.0, 0.3, 0.31)] == [5 / 5, 3 / 5, 1 / 5]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_by_its_definition(p):
    # Reject step by step at level a: the adjusted p is the smallest level at which the hypothesis is rejected.
    adjusted = holm(p)
    for level in (0.01, 0.05, 0.2):
        rejected, order = set(), sorted(range(len(p)), key=lambda i: p[i])
        for rank, index in enumerate(order):
            if p[index] * (len(p) - rank) > level:
                break
            rejected.add(index)
        assert {i for i, value in enumerate(adjusted) if value <= level} == rejected


def test_bits_are_big_endian():
    assert read_bits("a0", 4).tolist() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match="wanted 9 bits"):
        read_bits("a0", 9)


def test_image_error_is_that_of_the_paired_difference():
    rng = np.random.default_rng(0)
    claim, twin = rng.integers(0, 2, (3, 500)).astype(float), rng.integers(0, 2, (3, 500)).astype(float)
    d = [sum(claim[s][i] - twin[s][i] for s in range(3)) / 3 for i in range(500)]
    mean = sum(d) / 500
    expected = math.sqrt(sum((x - mean) ** 2 for x in d) / 499 / 500)
    assert image_standard_error(list(claim), list(twin)) == pytest.approx(expected, rel=1e-12)
    assert image_standard_error([claim[0]], [claim[0]]) == 0.0
