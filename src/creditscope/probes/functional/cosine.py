"""Cosines per sample in float64, without an eps: a zero vector has no direction, and that is said."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

# Between 1/limit and limit the square of a norm neither underflows nor overflows.
SAFE_NORM = {torch.float32: 1e15, torch.float64: 1e140}


def units(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors along the last axis, in float64, and where they are defined; zero where they are not.

    Each vector is first divided by its largest entry, so a norm of 1e-200 or 1e200 is as good as 1.

    Args:
        vectors: Shape (..., d).
    """
    exact = vectors.double()
    top = exact.abs().amax(dim=-1, keepdim=True)
    defined = (top > 0) & top.isfinite()
    scaled = torch.where(defined, exact / top, 0.0)
    norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return torch.where(defined, scaled / norm, 0.0), defined.squeeze(-1)


def cosines(c: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine per sample, NaN where a vector is zero or not finite, and the mask of where it is defined.

    Args:
        c: Shape (..., n, d).
        g: The same, or broadcastable to it.
    """
    (c_unit, c_defined), (g_unit, g_defined) = units(c), units(g)
    defined = c_defined & g_defined
    value = (c_unit * g_unit).sum(dim=-1).clamp(-1, 1)  # rounding can pass 1 by 2e-16
    return torch.where(defined, value, math.nan), defined


def mean_defined(values: Tensor, defined: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over the last axis where defined (NaN where nothing is) and the number of values in it.

    Args:
        values: Shape (..., n).
        defined: Mask of the same shape.
    """
    count = defined.sum(dim=-1)
    return torch.where(defined, values, 0.0).sum(dim=-1) / count, count


def sum_cosines(redrawn: Sequence[Tensor], unit: Iterable[Tensor], defined: Tensor) -> tuple[Tensor, Tensor]:
    """Per state, the sum over samples of the cosines of many redrawn signals with unit vectors, and their number.

    The same value as ``cosines`` up to the rounding of the signals' dtype, in fewer passes over the large arrays.

    Args:
        redrawn: Per state shape (k, n, d), float32 or float64: k redraws of the signal of n samples.
        unit: Per state shape (j, n, d), float64: unit vectors of j references; taken one state after the other.
        defined: Shape (states, j, n): where these are defined.

    Returns:
        Two float64 tensors of shape (states, k, j).
    """
    norms = torch.stack([torch.linalg.vector_norm(c, dim=-1) for c in redrawn])
    limit = SAFE_NORM[norms.dtype]
    if not bool(((norms > 1 / limit) & (norms < limit)).all()):
        pairs = [units(c) for c in redrawn]
        redrawn, norms = [c for c, _ in pairs], torch.stack([alive for _, alive in pairs]).double()
    # Per sample one product (k, d)·(d, j): no array of the size of ``redrawn`` is made.
    dots = torch.stack(
        [torch.matmul(c.transpose(0, 1), u.to(c.dtype).permute(1, 2, 0)) for c, u in zip(redrawn, unit, strict=True)]
    )
    counted = (norms > 0).unsqueeze(2) & defined.unsqueeze(1)
    value = torch.where(counted, dots.permute(0, 2, 3, 1).double() / norms.unsqueeze(2), 0.0)
    return value.sum(dim=-1), counted.sum(dim=-1).double()
