"""Participation ratio: over how many directions a state's variance is spread."""

import math

import torch
from torch import Tensor


def participation_ratio(h: Tensor) -> Tensor:
    """(Σλ)²/Σλ² of the covariance over samples, from traces alone; NaN where nothing varies.

    Args:
        h: Shape (n, d), n ≥ 2.
    """
    # Asked of the values themselves: less their mean they differ from 0 by rounding.
    varies = (h.amax(dim=0) > h.amin(dim=0)).any()
    x = h.double() - h.double().mean(dim=0)
    x = x / torch.where(varies, x.abs().amax(), 1.0)
    gram = x.T @ x if x.shape[1] <= x.shape[0] else x @ x.T
    return torch.where(varies, gram.trace().square() / gram.square().sum(), math.nan)
