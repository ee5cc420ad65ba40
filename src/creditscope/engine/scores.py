"""Test results of many runs."""

from collections.abc import Callable

import torch
from torch import Tensor

from creditscope.data.dataset import Dataset
from creditscope.engine.state import Scores
from creditscope.engine.step import cross_entropy

# Test samples that are answered at once: images or vectors, and sequences.
_CHUNK, _SEQUENCES = 500, 128


def eval_chunk(tokens: int | None) -> int:
    """How many test samples are answered at once.

    Args:
        tokens: Targets of one sample where it is a sequence.
    """
    return _CHUNK if tokens is None else _SEQUENCES


def scores_of(logits_of: Callable[[Tensor], Tensor], data: Dataset) -> Scores:
    """Loss, accuracy and what was right of every run on the test split.

    Args:
        logits_of: Logits of every run on raw inputs, first axis runs.
        data: The data set.
    """
    losses, hits = [], []
    labels = data.y_test
    size = eval_chunk(data.spec.tokens)
    for x, y in zip(*(torch.split(t, size) for t in (data.x_test, labels)), strict=True):
        logits = logits_of(x)
        runs = len(logits)
        each = cross_entropy(logits.flatten(0, 1).double(), y.repeat(runs, *(1,) * (y.ndim - 1)))
        losses.append(each.view(runs, -1))
        hits.append(logits.argmax(-1) == y)
    right = torch.cat(hits, 1)
    return Scores(
        torch.cat(losses, 1).mean(1),
        right.flatten(1).double().mean(1),
        _balanced(right.flatten(1).double(), labels.flatten(), data.classes),
        right.sum(2) if right.ndim == 3 else right,
    )


def _balanced(right: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Mean over the classes that there are of the accuracy on each."""
    # Sums of ones are exact in any order.
    found = right.new_zeros(len(right), classes).index_add_(1, labels, right)
    size = right.new_zeros(classes).index_add_(0, labels, torch.ones_like(right[0]))
    return torch.where(size > 0, found / size, 0).sum(1) / (size > 0).sum()
