"""The statistics of the protocol: intervals over seeds, Monte-Carlo p, Holm, seeds needed, error over test images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

CONFIDENCE = 0.95
SD_LEVEL = 0.80
MOST_SEEDS = 100_000


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval.

    Args:
        mean: The estimate.
        low: Lower end of the 95 % t interval; −∞ from one seed.
        high: Upper end; ∞ from one seed.
        sd: Standard deviation per seed (of the difference, for two samples); None from one seed.
        n: Seeds, of the smaller sample where there are two.
        kind: ``paired``, ``Welch`` or ``one seed``.
    """

    mean: float
    low: float
    high: float
    sd: float | None
    n: int
    kind: str


def paired(margins: Sequence[float]) -> Estimate:
    """Mean of per-seed margins with its t interval.

    Args:
        margins: One difference per seed.
    """
    values = np.asarray(margins, dtype=float)
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return Estimate(mean, -math.inf, math.inf, None, n, "one seed")
    sd = float(values.std(ddof=1))
    half = _t(n - 1) * sd / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, sd, n, "paired")


def welch(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Difference of two means with Welch's t interval.

    Args:
        first: One value per seed.
        second: The values subtracted.
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    mean, n = float(a.mean() - b.mean()), min(len(a), len(b))
    if n < 2:
        return Estimate(mean, -math.inf, math.inf, None, n, "one seed")
    va, vb = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    sd = math.sqrt(float(a.var(ddof=1)) + float(b.var(ddof=1)))
    if va + vb == 0:
        return Estimate(mean, mean, mean, 0.0, n, "Welch")
    degrees = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = _t(degrees) * math.sqrt(va + vb)
    return Estimate(mean, mean - half, mean + half, sd, n, "Welch")


def _t(degrees: float) -> float:
    """Two-sided 95 % quantile of Student's t; special.stdtrit is the same number as stats.t.ppf, 50 times as fast."""
    return float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2))


def sd_upper_limit(sd: float, n: int) -> float:
    """One-sided 80 % upper confidence limit of a standard deviation.

    Args:
        sd: The sample's.
        n: Its size, at least 2.
    """
    return sd * math.sqrt((n - 1) / float(special.chdtri(n - 1, SD_LEVEL)))


def seeds_needed(gap: float, sd: float) -> int | None:
    """Smallest n with t·s/√n below a gap, so that an interval of that mean would clear the threshold.

    Args:
        gap: |mean − threshold|.
        sd: Standard deviation per seed.

    Returns:
        n, or None when even ``MOST_SEEDS`` would not do.
    """

    def enough(n: int) -> bool:
        return _t(n - 1) * sd / math.sqrt(n) < gap

    if gap <= 0 or not enough(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def seeds_needed_range(estimate: Estimate, threshold: float) -> tuple[int | None, int | None] | None:
    """Seeds needed to settle an open margin, for s and for its 80 % upper limit; None from one seed.

    Args:
        estimate: The margin so far.
        threshold: Where it must be decided.
    """
    if estimate.sd is None:
        return None
    gap = abs(estimate.mean - threshold)
    return seeds_needed(gap, estimate.sd), seeds_needed(gap, sd_upper_limit(estimate.sd, estimate.n))


def monte_carlo_p(observed: float, draws: NDArray[np.float64]) -> float:
    """p = (1 + #{null ≥ observed})/(K + 1): exact whatever the null's shape.

    Args:
        observed: The statistic.
        draws: K values of it under the null.
    """
    return (1 + int((draws >= observed).sum())) / (len(draws) + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the given order.

    Args:
        p: Raw p values.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, largest = [1.0] * len(p), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def read_bits(correct: str, n: int) -> NDArray[np.float64]:
    """Per-image correctness, 0 or 1, from hexadecimal bits, big-endian in each byte.

    Args:
        correct: The hexadecimal text.
        n: How many bits count.
    """
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(correct), dtype=np.uint8))
    if len(bits) < n:
        raise ValueError(f"wanted {n} bits of per-image correctness, got {len(bits)}")
    return bits[:n].astype(float)


def read_counts(right: str, n: int) -> NDArray[np.float64]:
    """How many tokens of each sequence are right, from two hexadecimal bytes each, big-endian.

    Args:
        right: The hexadecimal text.
        n: How many sequences count.
    """
    counts = np.frombuffer(bytes.fromhex(right), dtype=">u2")
    if len(counts) != n:
        raise ValueError(f"wanted the right tokens of {n} sequences, got {len(counts)}")
    return counts.astype(float)


def image_standard_error(claim: Sequence[NDArray[np.float64]], baseline: Sequence[NDArray[np.float64]]) -> float:
    """Standard error over test images of the difference of two accuracies on the same images.

    Args:
        claim: Per-image correctness, one array per seed.
        baseline: The same for the baseline.
    """
    difference = np.mean(claim, axis=0) - np.mean(baseline, axis=0)
    return float(difference.std(ddof=1) / math.sqrt(len(difference)))
