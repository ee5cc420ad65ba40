"""The controls of a method: the same model with parts of it frozen, trained the same way."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from creditscope.blocks.partition import Where
from creditscope.errors import BadInput
from creditscope.scope.probe_data import Loader
from creditscope.scope.restore import restoring
from creditscope.scope.subject import LossOf, Subject


def freeze(model: nn.Module, part: str, blocks: Where, loader: Loader, loss_fn: LossOf | None) -> None:
    """Freeze what a control does not train.

    Args:
        model: The model at initialisation.
        part: ``frozen``: the blocks; ``readout``: everything but the head, which is what no state depends on.
        blocks: Where the blocks are.
        loader: A few samples, to see what is the head.
        loss_fn: As in ``audit_model``.
    """
    with restoring(model):
        subject = Subject.of(model, blocks, loader, loss_fn, None, None, 0)
        parts = subject.partition.parts(subject.data.probe.x[:2])
    for name, p in model.named_parameters():
        if isinstance(parts[name], int) or (part == "readout" and parts[name] != "readout"):
            p.requires_grad_(False)
    if not any(p.requires_grad for p in model.parameters()):
        what = "the blocks" if part == "frozen" else "everything but the head"
        raise BadInput(
            f"nothing is left to train with {what} frozen; blocks=[...] takes in too much: leave out the output layer"
        )


def frozen_names(model: nn.Module) -> tuple[str, ...]:
    """Parameters that do not require a gradient.

    Args:
        model: The model.
    """
    return tuple(name for name, p in model.named_parameters() if not p.requires_grad)


def require_held(model: nn.Module, start: Mapping[str, Tensor], frozen: tuple[str, ...], run: str) -> None:
    """Refuse a training that changed what was frozen, by as little as one bit.

    Args:
        model: The trained model.
        start: Its state before.
        frozen: Parameters that were frozen.
        run: Which training, in words.
    """
    now = dict(model.named_parameters())
    for name in frozen:
        if name not in now:
            raise BadInput(f"fit took {name} out of the model in {run}; train the model it is given in place")
        if not same_bits(now[name], start[name]):
            raise BadInput(
                f"fit trained {name} in {run}, though its requires_grad is False: no control can be made; "
                "leave alone what does not require a gradient"
            )


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors agree bit for bit, NaN included.

    Args:
        one: A tensor.
        other: Another.
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    pair = (t.detach().cpu().contiguous().flatten().view(torch.uint8) for t in (one, other))
    return torch.equal(*pair)
