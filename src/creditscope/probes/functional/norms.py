"""Norms over samples: median, outer quantiles, and the interval of the median. Nothing waits for the device."""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class NormStats(NamedTuple):
    """What is kept of the norms of n samples; float64, the leading axes of the norms.

    Args:
        median: Median over samples.
        q05: 5 % quantile, interpolated between neighbours.
        q95: 95 % quantile.
        low: Lower end of the 95 % interval of the median.
        high: Upper end of it.
    """

    median: Tensor
    q05: Tensor
    q95: Tensor
    low: Tensor
    high: Tensor


def vector_norms(vectors: Tensor) -> Tensor:
    """L2 norm over the last axis, in float64.

    Args:
        vectors: Shape (..., d).
    """
    return torch.linalg.vector_norm(vectors.double(), dim=-1)  # type: ignore[no-any-return]


def norm_stats(norms: Tensor) -> NormStats:
    """Summarise norms over the last axis.

    The interval is the exact form of the percentile bootstrap of the median: the order statistics whose ranks
    leave at most 2.5 % of a binomial(n, 1/2) outside on each side. Below 6 samples no order statistic does; the
    interval is then the whole range. A NaN among the samples makes all five NaN: a diverged net has no median.

    Args:
        norms: Shape (..., n), n ≥ 1.
    """
    n = norms.shape[-1]
    ordered = norms.double().sort(dim=-1).values
    broken = ordered[..., -1].isnan()  # NaN sorts last
    low = median_rank(n)
    values = (_quantile(ordered, 0.5), _quantile(ordered, 0.05), _quantile(ordered, 0.95))
    ends = (ordered[..., low], ordered[..., n - 1 - low])
    return NormStats(*(torch.where(broken, math.nan, value) for value in (*values, *ends)))


def median_defined(values: Tensor) -> Tensor:
    """Median over the last axis of the values that are not NaN; NaN where there is none.

    Args:
        values: Shape (..., n), n ≥ 1.
    """
    ordered = values.sort(dim=-1).values  # NaN sorts last
    last = (~ordered.isnan()).sum(-1, keepdim=True) - 1
    lower, upper = (ordered.gather(-1, rank.clamp(min=0)) for rank in (last // 2, (last + 1) // 2))
    return torch.where(lower == upper, lower, (lower + upper) / 2).squeeze(-1)


@lru_cache(maxsize=64)
def median_rank(n: int) -> int:
    """Zero-based rank k such that [x_(k), x_(n−1−k)] covers the median with at least 95 %, or 0 if none does.

    Args:
        n: Samples.
    """
    # The largest k with P(binomial(n, 1/2) ≤ k) ≤ 1/40, in whole numbers: no rounding decides a rank.
    ways, below, rank = 1, 1, 0
    for k in range(n // 2):
        if 40 * below > 2**n:
            break
        rank = k
        ways = ways * (n - k) // (k + 1)
        below += ways
    return rank


def _quantile(ordered: Tensor, q: float) -> Tensor:
    """Linear interpolation between neighbours, without ∞ − ∞."""
    place = q * (ordered.shape[-1] - 1)
    index, weight = int(place), place - int(place)
    here = ordered[..., index]
    if weight == 0:
        return here
    there = ordered[..., index + 1]
    return torch.where(here == there, here, here + weight * (there - here))
