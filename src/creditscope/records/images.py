"""What a log says of single test samples: which images were right and of which class, how much of each sequence."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Labels are two bytes each.
_MOST_CLASSES = 2**16


def pack_bits(correct: NDArray[Any]) -> str:
    """Per-image correctness as hexadecimal bits, big-endian in each byte.

    Args:
        correct: One truth value an image.
    """
    return np.packbits(correct.astype(bool)).tobytes().hex()


def sequence_fields(right: NDArray[Any]) -> dict[str, Any]:
    """The fields of an end row that speak of single sequences.

    Args:
        right: How many tokens of each are right.
    """
    return {"right": right.astype(">u2").tobytes().hex(), "n_test": len(right)}


def image_fields(correct: NDArray[Any], labels: NDArray[Any], unequal: bool) -> dict[str, Any]:
    """The fields of an end row that speak of single images.

    Args:
        correct: One truth value an image.
        labels: Their classes, from 0.
        unequal: Whether classes differ in size: only then are the labels needed to judge.
    """
    fields: dict[str, Any] = {"correct": pack_bits(correct), "n_test": len(correct)}
    if unequal and labels.max(initial=0) < _MOST_CLASSES:
        fields["labels"] = labels.astype(">u2").tobytes().hex()
    return fields
