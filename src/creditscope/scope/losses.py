"""A user's loss as one value per sample, whatever it returns."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from creditscope.blocks import LossFn
from creditscope.errors import BadInput

# A mean over a batch and the mean of single values differ by rounding alone.
_TOLERANCE = 1e-4
# What torch and Hugging Face write where a token has no target.
IGNORED = -100


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample cross-entropy, in nats; of a sequence whose every token has a target, the mean over those it has."""
    if y.ndim == 1:
        return functional.cross_entropy(logits, y, reduction="none")
    each = functional.cross_entropy(logits.movedim(-1, 1), y, reduction="none", ignore_index=IGNORED)
    return each.flatten(1).sum(1) / (y != IGNORED).flatten(1).sum(1).clamp(min=1)


def per_sample(loss_fn: Callable[[Any, Any], Tensor] | None, logits: Tensor, y: Tensor) -> LossFn:
    """The loss as a function that gives one value a sample, told by the shape of what it returns.

    A loss that returns one number is mapped over single samples, and refused if its value on the batch is neither the
    mean nor the sum of its values on single samples.

    Args:
        loss_fn: The user's loss of (logits, targets); None for cross-entropy on class labels.
        logits: Outputs of a few samples, to try it on.
        y: Their targets.
    """
    if loss_fn is None:
        if y.is_floating_point() or y.is_complex() or logits.shape[:-1] != y.shape:
            raise BadInput(
                f"targets of shape {tuple(y.shape)} and {y.dtype} are no class labels of outputs "
                f"{tuple(logits.shape)}; pass loss_fn=..."
            )
        return cross_entropy
    value = _tried(loss_fn, logits, y)
    if value.shape == (len(logits),):
        return loss_fn
    if value.numel() != 1:
        raise BadInput(
            f"wanted a loss of one number, or one a sample ({len(logits)},), got shape {tuple(value.shape)}; "
            "sum it over all but the first axis"
        )

    def single(z: Tensor, t: Tensor) -> Tensor:
        return loss_fn(z.unsqueeze(0), t.unsqueeze(0)).reshape(())

    def mapped(z: Tensor, t: Tensor) -> Tensor:
        return vmap(single)(z, t)

    try:
        values = mapped(logits, y)
    except Exception as error:
        raise BadInput(
            f"the loss returns one number and cannot be mapped over single samples ({_first(error)}); "
            "pass one with reduction='none'"
        ) from None
    total = float(value)
    if not any(abs(total - float(v)) <= _TOLERANCE * max(1.0, abs(total)) for v in (values.mean(), values.sum())):
        raise BadInput(
            f"the loss of the batch ({total:.4g}) is neither mean ({float(values.mean()):.4g}) nor sum of its samples' "
            "losses: class weights or a batch-level loss; pass one with reduction='none'"
        )
    return mapped


def _tried(loss_fn: Callable[[Any, Any], Tensor], logits: Tensor, y: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            value = loss_fn(logits, y)
    except Exception as error:
        raise BadInput(
            f"loss_fn failed on outputs {tuple(logits.shape)} and targets {tuple(y.shape)} {y.dtype}: {_first(error)}; "
            "it is called as loss_fn(outputs, targets)"
        ) from None
    if not isinstance(value, Tensor):
        raise BadInput(f"wanted a tensor from loss_fn, got {type(value).__name__}; return the loss itself")
    return value


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
