"""Participation ratio: over how many directions a state's variance is spread."""

import math

import torch
from torch import Tensor


def participation_ratio(h: Tensor) -> Tensor:
    """(Σλ)²/Σλ² of the covariance over samples, from traces alone; NaN where nothing varies.

    Args:
        h: Shape (n, d), n ≥ 2.
    """
    x = h.double() - h.double().mean(dim=0)
    x = x / torch.where(x.abs().amax() > 0, x.abs().amax(), 1.0)
    gram = x.T @ x if x.shape[1] <= x.shape[0] else x @ x.T
    spread = gram.square().sum()
    return torch.where(spread > 0, gram.trace().square() / spread, math.nan)
