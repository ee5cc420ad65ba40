"""Clamp onset: from which probe size on torch's clamped cosine shrinks the value it reports."""

from torch import Tensor

TORCH_CLAMP = 1e-8
PROBE_SIZES = (128, 1024, 2048)


def clamp_onset(median_norm: Tensor) -> Tensor:
    """N* = med‖g‖/1e-8: the mean-reduced probe size above which the median sample meets the clamp.

    Args:
        median_norm: Median norm of the per-sample, sum-reduced reference.
    """
    return median_norm.double() / TORCH_CLAMP


def shrink_factor(onset: Tensor, n: int) -> Tensor:
    """Factor max(1, N/N*) by which the clamp shrinks a cosine at probe size N.

    Args:
        onset: N*.
        n: N.
    """
    return (n / onset).clamp(min=1)
