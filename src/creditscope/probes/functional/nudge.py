"""Nudge: a step of fixed relative size against a vector, and what share of the best such step it is."""

import math

import torch
from torch import Tensor

from creditscope.probes.functional.cosine import mean_defined, units


def nudge_step(signal: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """The step −size·c/‖c‖ per sample, and where c has a direction.

    Args:
        signal: c, shape (..., d).
        size: η·med‖h‖.
    """
    unit, defined = units(signal)
    return -size * unit, defined


def mean_change(before: Tensor, after: Tensor, defined: Tensor) -> Tensor:
    """Mean loss change over the samples that were nudged; NaN where none was.

    Args:
        before: Loss per sample.
        after: Loss per sample after the step.
        defined: Which samples count.
    """
    return mean_defined(after - before, defined)[0]


def efficiency(credit: Tensor, reference: Tensor) -> Tensor:
    """nudge(c)/nudge(g), NaN where the reference itself changes nothing.

    Args:
        credit: Mean change against the credit.
        reference: Mean change against the true gradient.
    """
    return torch.where(reference != 0, credit / reference, math.nan)
