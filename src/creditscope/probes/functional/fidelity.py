"""Fidelity: does the run's dtype carry the reference gradient's direction?"""

import math

import torch
from torch import Tensor

from creditscope.probes.functional.cosine import units

# A reference whose φ is smaller is not usable in its dtype.
FAITHFUL = 0.9999


def infidelity(run: Tensor, exact: Tensor) -> tuple[Tensor, Tensor]:
    """1 − φ per sample with φ = cos(g in the run's dtype, g in float64), and where g vanished in the run's dtype.

    1 − φ is taken from the distance of the unit vectors: 1 − cos itself would round 1e-17 away. A gradient that
    is zero or not finite in the run's dtype only has φ = 0; one that is zero in both has no φ (NaN).

    Args:
        run: g in the run's dtype, shape (..., n, d).
        exact: g in float64, the same shape.

    Returns:
        1 − φ of shape (..., n), and a mask of the samples that are zero in the run's dtype but not in float64.
    """
    (run_unit, run_defined), (exact_unit, exact_defined) = units(run), units(exact)
    gap = (run_unit - exact_unit).square().sum(dim=-1) / 2
    gap = torch.where(run_defined, gap, 1.0)
    vanished = (run == 0).all(dim=-1) & exact_defined
    return torch.where(exact_defined, gap, math.nan), vanished


def allowed_error(gap: Tensor) -> Tensor:
    """√(1 − φ²), the error of a cosine that φ allows, from 1 − φ.

    Args:
        gap: 1 − φ.
    """
    return (gap * (2 - gap)).clamp(min=0).sqrt()


def confident_tenth(logits: Tensor) -> Tensor:
    """Indices of the tenth of the samples (at least one) whose top class leads all others together by most.

    The lead is taken in log odds: probabilities saturate at 1 and would tie.

    Args:
        logits: Shape (n, classes), at least two classes.
    """
    top, place = logits.double().max(dim=-1, keepdim=True)
    others = logits.double().scatter(-1, place, -math.inf)
    lead = top.squeeze(-1) - others.logsumexp(dim=-1)
    return lead.reshape(len(lead), -1).mean(1).topk(max(1, len(logits) // 10)).indices
