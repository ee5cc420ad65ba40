"""Where a user's model is cut: blocks that can be measured, no head among them, and the weights between them."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from creditscope.blocks.partition import Where
from creditscope.errors import BadInput
from creditscope.scope.inputs import OwnCall
from creditscope.scope.true_backward import TrueBlocks


def plain_names(blocks: Where) -> Where:
    """Names without the prefix that ``torch.compile`` gives them.

    Args:
        blocks: As the user names them.
    """
    if isinstance(blocks, Sequence) and not isinstance(blocks, str):
        return [b.removeprefix("_orig_mod.") if isinstance(b, str) else b for b in blocks]  # type: ignore[return-value]
    return blocks


def steady_logits(partition: TrueBlocks, x: Tensor) -> Tensor:
    """Outputs of the first two samples, once the states are seen to keep their shapes from call to call.

    Args:
        partition: The partitioned model.
        x: The probe samples.
    """
    full = {
        **dict(partition.model.named_parameters()),
        **{name: b.clone() for name, b in partition.model.named_buffers()},
    }
    try:
        with torch.no_grad():
            first, again = (partition.forward(full, part) for part in (x[:2], x[-2:]))
    except BadInput as refused:
        error = refused.__cause__
        if error is None:
            raise
        said = (str(error).strip().splitlines() or [""])[0]
        given = partition.inputs(x)
        named = given if isinstance(given, dict) else {"x": given} if isinstance(given, Tensor) else {}
        shapes = ", ".join(f"{name} {tuple(t.shape)} {t.dtype}" for name, t in named.items())
        called = (
            "forward(model, batch)"
            if isinstance(given, OwnCall)
            else "model(x)"
            if given is x
            else f"model({', '.join(f'{name}=...' for name in named)})"
        )
        raise BadInput(
            f"the model failed on inputs {shapes.removeprefix('x ')}: {type(error).__name__}: {said}; "
            f"it is called as {called}"
        ) from None
    for level, (one, two) in enumerate(zip(first.states, again.states, strict=True)):
        if one.shape != two.shape:
            where = f"block {partition.names[level - 1]} puts out" if level else "what enters the first block has"
            raise BadInput(
                f"wanted states of one shape in every call, but {where} {tuple(one.shape[1:])} and then "
                f"{tuple(two.shape[1:])}; choose blocks where the shape is fixed, or pad the inputs"
            )
        if len(one) != 2:
            raise BadInput(
                f"wanted states with samples on axis {partition.batch_axis}, state {level} of 2 samples has shape "
                f"{tuple(one.movedim(0, partition.batch_axis).shape)}; pass batch_axis=..., or choose other blocks"
            )
    if not isinstance(first.logits, Tensor) or first.logits.ndim < 1 or len(first.logits) != 2:
        got = tuple(first.logits.shape) if isinstance(first.logits, Tensor) else type(first.logits).__name__
        raise BadInput(
            f"wanted outputs with samples on the first axis from the model, got {got} for 2 samples; "
            "pass forward=lambda model, batch: ... that returns them so"
        )
    return first.logits


def without_head(partition: TrueBlocks, x: Tensor) -> TrueBlocks:
    """Blocks that were found, without an output layer among them: what it puts out are the outputs themselves.

    Args:
        partition: The partitioned model.
        x: A few inputs.
    """
    full = {**dict(partition.model.named_parameters()), **dict(partition.model.named_buffers())}
    with torch.no_grad():
        seen = partition.forward(full, x)
    if seen.states[-1].shape != seen.logits.shape or "readout" in partition.parts(x).values():
        return partition
    if partition.depth == 1:
        raise BadInput("found no blocks besides the output layer; name them with blocks=['path.0', 'path.1', ...]")
    return replace(partition, names=partition.names[:-1], modules=partition.modules[:-1])


def segments_of(partition: TrueBlocks, x: Tensor) -> dict[str, int]:
    """Weights outside all blocks, by the block whose output is the first state that depends on them.

    Args:
        partition: The partitioned model.
        x: A few inputs.
    """
    params, buffers = dict(partition.model.named_parameters()), dict(partition.model.named_buffers())
    outside = {name: p for name, p in params.items() if partition.block_of(name) is None}
    found: dict[str, int] = {}
    for level in range(partition.depth + 1):
        left = {name: p for name, p in outside.items() if name not in found}
        full = {**buffers, **params}
        reached = partition.reached(lambda live: partition.forward({**full, **live}, x).states[level], left)  # noqa: B023
        found |= dict.fromkeys(reached, level - 1)
    return {name: block for name, block in found.items() if block >= 0}
