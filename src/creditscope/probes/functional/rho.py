"""ρ: Pearson correlation between predicted and true loss changes."""

import math

import torch
from torch import Tensor


def pearson(x: Tensor, y: Tensor) -> Tensor:
    """Pearson correlation of all entries, in float64; NaN where either side does not vary.

    Args:
        x: Any shape.
        y: The same shape.
    """
    # Constancy is asked of the values themselves: less their mean they differ from 0 by rounding.
    vary = (x.amax() > x.amin()) & (y.amax() > y.amin())
    x, y = _centred(x), _centred(y)
    product = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y)
    return torch.where(vary, ((x * y).sum() / product).clamp(-1, 1), math.nan)


def predicted_changes(signal: Tensor, directions: Tensor, step: Tensor) -> Tensor:
    """⟨c_i, ε·v_im⟩: what a signal says about the loss change along each direction.

    Args:
        signal: c, shape (..., n, d).
        directions: Unit vectors v, shape (n, m, d).
        step: ε.
    """
    return torch.einsum("...nd,nmd->...nm", signal.double(), directions) * step


def _centred(values: Tensor) -> Tensor:
    """Less the mean, then scaled to a largest entry of 1: no square underflows."""
    flat = values.double().flatten()
    flat = flat / torch.where(flat.abs().amax() > 0, flat.abs().amax(), 1.0)
    flat = flat - flat.mean()
    return flat / torch.where(flat.abs().amax() > 0, flat.abs().amax(), 1.0)
