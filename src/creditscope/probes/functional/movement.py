"""Movement: how far a weight matrix went from its initial direction. Shrinking is not moving."""

import math

import torch
from torch import Tensor


def movement(theta: Tensor, theta0: Tensor) -> Tensor:
    """min_c ‖θ − c·θ(0)‖/‖θ(0)‖ in float64; from a zero start infinite, or NaN while still zero.

    Args:
        theta: The matrix now.
        theta0: The matrix at initialisation.
    """
    now, start = theta.double().flatten(), theta0.double().flatten()
    size = start.square().sum()
    factor = torch.where(size > 0, (now * start).sum() / torch.where(size > 0, size, 1.0), 0.0)
    rest = torch.linalg.vector_norm(now - factor * start)
    zero_start = torch.where(rest > 0, math.inf, math.nan)
    return torch.where(size > 0, rest / torch.where(size > 0, size, 1.0).sqrt(), zero_start)
