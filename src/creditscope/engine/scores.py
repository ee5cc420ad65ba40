"""Test results of many runs."""

from collections.abc import Callable

import torch
from torch import Tensor

from creditscope.data.dataset import Dataset
from creditscope.engine.state import Scores
from creditscope.engine.step import cross_entropy

EVAL_CHUNK = 500


def scores_of(logits_of: Callable[[Tensor], Tensor], data: Dataset) -> Scores:
    """Loss, accuracy and per-image correctness of every run on the test split.

    Args:
        logits_of: Logits of every run on raw inputs, first axis runs.
        data: The data set.
    """
    losses, hits = [], []
    labels = data.y_test
    for x, y in zip(*(torch.split(t, EVAL_CHUNK) for t in (data.x_test, labels)), strict=True):
        logits = logits_of(x)
        losses.append(cross_entropy(logits.flatten(0, 1).double(), y.repeat(len(logits))).view(len(logits), -1))
        hits.append(logits.argmax(-1) == y)
    correct = torch.cat(hits, 1)
    of_class = (labels[:, None] == torch.arange(data.classes, device=labels.device)).double()
    size = of_class.sum(0)
    per_class = correct.double() @ of_class / size
    balanced = torch.where(size > 0, per_class, 0).sum(1) / (size > 0).sum()
    return Scores(torch.cat(losses, 1).mean(1), correct.double().mean(1), balanced, correct)
