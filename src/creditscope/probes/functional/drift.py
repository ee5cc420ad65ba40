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
    fall slightly below 0 where nothing is common. NaN where all samples agree exactly.

    Args:
        g: Shape (n, d), n ≥ 3.
    """
    g = g.double()
    g = g / torch.where(g.abs().amax() > 0, g.abs().amax(), 1.0)
    n = len(g)
    total, squares = g.sum(dim=0), g.square().sum(dim=1)
    whole = _ratio(total.square().sum(), squares.sum(), n)
    without_sum = total.square().sum() - 2 * (g @ total) + squares
    without = _ratio(without_sum, squares.sum() - squares, n - 1)
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


def _ratio(sum_squared: Tensor, squares: Tensor, n: int) -> Tensor:
    trace = (squares - sum_squared / n) / (n - 1)
    return (sum_squared / n**2 - trace / n) / trace
