"""Movement: how far a weight matrix went from its initial direction. Shrinking is not moving."""

import math

import torch
from torch import Tensor


def movements(theta: Tensor, theta0: Tensor) -> Tensor:
    """min_c ‖θ − c·θ(0)‖/‖θ(0)‖ in float64; from a zero start infinite, or NaN while still zero.

    Args:
        theta: Matrices now, stacked on the first axis.
        theta0: The same at initialisation.

    Returns:
        One value a matrix.
    """
    now, start = theta.double().flatten(1), theta0.double().flatten(1)
    size = start.square().sum(1)
    some = size > 0
    divisor = torch.where(some, size, 1.0)
    factor = (now * start).sum(1) / divisor  # 0 from a zero start
    rest = torch.linalg.vector_norm(now - factor[:, None] * start, dim=1)
    return torch.where(some, rest / divisor.sqrt(), torch.where(rest > 0, math.inf, math.nan))
