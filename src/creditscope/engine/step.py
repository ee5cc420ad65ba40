"""One pure step's worth of credit for one run; the fleet maps it over runs."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from creditscope.blocks import Batch, Blocks, Credit, CreditRule, Feedback, Params, Task
from creditscope.records import RunSpec


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample cross-entropy, in nats."""
    # torch's own also looks for labels to ignore: a dozen operations more under vmap.
    return -functional.log_softmax(logits, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1)


def assign_one(
    rule: CreditRule, task: Task, params: Params, feedback: Feedback, x: Tensor, y: Tensor, penalty: Tensor | None
) -> Credit:
    """The credit of one run on one batch.

    Args:
        rule: The rule.
        task: What is trained.
        params: Parameters of this run.
        feedback: Its feedback.
        x: Inputs.
        y: Targets.
        penalty: λ, or None where no run of the group has one.
    """
    return rule.assign(task, params, feedback, Batch(x, y), penalty)


def schedule_factor(schedule: str, epoch: int, epochs: int) -> float:
    """The factor on the learning rate during an epoch, counted from 1.

    Args:
        schedule: ``cosine`` (to 0, stepped per epoch) or ``constant``.
        epoch: The epoch about to be trained, 1..epochs.
        epochs: Epochs planned.
    """
    if schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (epoch - 1) / epochs))


def trained_parameters(spec: RunSpec, blocks: Blocks, parts: dict[str, str | int]) -> frozenset[str]:
    """Names of the parameters that train in a run: what the method says, less what the model itself holds fixed.

    Args:
        spec: The run.
        blocks: The cut model.
        parts: Which part each parameter belongs to (``Blocks.parts``).
    """
    first = 0 if spec.train_last == "all" or spec.train_last is None else blocks.depth - spec.train_last
    embedding = spec.train_embedding is not False

    def trains(part: str | int) -> bool:
        if isinstance(part, int):
            return part >= first
        return part == "readout" or embedding

    fixed = {name for name, p in blocks.model.named_parameters() if not p.requires_grad}
    return frozenset(name for name, part in parts.items() if trains(part) and name not in fixed)


def weight_matrices(blocks: Blocks, parts: dict[str, str | int]) -> list[list[str]]:
    """Names of each block's weight matrices: no biases, no norm gains.

    Args:
        blocks: The cut model.
        parts: Which part each parameter belongs to.
    """
    shapes = {name: p.ndim for name, p in blocks.model.named_parameters()}
    return [
        [name for name, part in parts.items() if part == index and shapes[name] > 1] for index in range(blocks.depth)
    ]


def dtype_of(spec: RunSpec) -> torch.dtype:
    """The torch dtype of a run."""
    dtype = getattr(torch, spec.dtype or "float32")
    assert isinstance(dtype, torch.dtype)
    return dtype
