"""Cosine between two gradients, or a gradient and a step, that are spread over several parameters."""

from collections.abc import Sequence

import torch
from torch import Tensor

from creditscope.probes.functional.cosine import cosines


def joint_cosine(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Cosine of two sets of tensors, each set taken as one vector; NaN where one of them is zero.

    ``gradient cosine`` is this between a rule's gradient and BP's, ``step descent`` between BP's gradient and the
    actual step.

    Args:
        first: One tensor a parameter.
        second: The same parameters in the same order.
    """
    return cosines(one_vector(first), one_vector(second))[0]


def one_vector(tensors: Sequence[Tensor]) -> Tensor:
    """All entries in a row, in float64.

    Args:
        tensors: One tensor a parameter.
    """
    return torch.cat([t.double().flatten() for t in tensors])
