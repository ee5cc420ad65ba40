"""Drift: how much of the per-sample gradient is common to all samples."""

from typing import NamedTuple

import torch
from torch import Tensor


class DriftRatio(NamedTuple):
    """The ratio and its standard error.

    Args:
        s: ‖μ‖²/tr Σ.
        se: Jackknife standard error.
    """

    s: Tensor
    se: Tensor


def drift_ratio(g: Tensor) -> DriftRatio:
    """s = ‖μ‖²/tr Σ over samples, free of the number of samples.

    The squared norm of a mean of n samples is too large by tr Σ/n on average; that much is taken off, so s can
    fall slightly below 0 where nothing is common. NaN where every gradient is zero.

    Args:
        g: Shape (n, d), n ≥ 3.
    """
    g = g.double()
    g = g / torch.where(g.abs().amax() > 0, g.abs().amax(), 1.0)
    n, mean = len(g), g.mean(dim=0)
    # Sums of squares about the mean: none can turn negative by cancellation.
    off = g - mean
    scatter = off.square().sum(dim=1)
    whole = _ratio(mean.square().sum(), scatter.sum(), n)
    mean_without = mean.square().sum() - 2 * (off @ mean) / (n - 1) + scatter / (n - 1) ** 2
    without = _ratio(mean_without, scatter.sum() - n / (n - 1) * scatter, n - 1)
    se = ((n - 1) / n * (without - without.mean()).square().sum()).sqrt()
    return DriftRatio(whole, se)


def drift_at(s: Tensor, n: int) -> Tensor:
    """Share s/(s + 1/n) of the expected squared batch gradient that is common; a negative estimate counts as 0.

    Args:
        s: The ratio.
        n: Batch size.
    """
    s = s.clamp(min=0)
    return s / (s + 1 / n)


def _ratio(mean_squared: Tensor, scatter: Tensor, n: int) -> Tensor:
    trace = scatter / (n - 1)
    return (mean_squared - trace / n) / trace
