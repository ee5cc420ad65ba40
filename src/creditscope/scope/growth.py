"""Growth of a residual stream with unequal states: different shapes, or blocks that end in a normaliser."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.blocks import Snapshot, Task
from creditscope.blocks.partition import hooks, state_of
from creditscope.probes.functional.norms import norm_stats, vector_norms

NORMALISERS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
)


def per_element(growth: list[float | None], shapes: tuple[tuple[int, ...], ...]) -> list[float | None]:
    """Growth of the RMS per element: ‖h‖/√(entries) in the place of ‖h‖.

    Args:
        growth: med‖h_{l+1}‖/med‖h_l‖ per block.
        shapes: Shape of one sample's state, per level.
    """
    entries = [math.prod(shape) for shape in shapes]
    return [
        None if ratio is None else ratio * math.sqrt(before / after)
        for ratio, before, after in zip(growth, entries, entries[1:], strict=False)
    ]


def ends_in_normaliser(task: Task, x: Tensor) -> bool:
    """Whether some block ends in a normaliser; it takes a forward pass to see.

    Args:
        task: The partitioned model.
        x: A few inputs.
    """
    return bool(_entering(task, {**task.buffers, **dict(task.blocks.model.named_parameters())}, x))


def sums_before_normalisers(snapshot: Snapshot) -> dict[int, float]:
    """Median norm of what enters the normaliser that ends a block, by block; blocks that end otherwise are absent.

    Args:
        snapshot: The run.
    """
    parts: dict[int, list[Tensor]] = {}
    full = {**snapshot.task.buffers, **snapshot.params}
    for batch in snapshot.batches:
        for block, norms in _entering(snapshot.task, full, batch.x).items():
            parts.setdefault(block, []).append(norms)
    return {block: float(norm_stats(torch.cat(norms)).median) for block, norms in parts.items()}


def _entering(task: Task, full: dict[str, Tensor], x: Tensor) -> dict[int, Tensor]:
    """One forward pass: norms of what enters the last normaliser, where its output is the block's output."""
    last: list[tuple[Tensor, int, Tensor]] = []
    found: dict[int, Tensor] = {}

    def first(h: Tensor) -> Tensor:
        return h.movedim(task.blocks.batch_axis, 0)

    def normalised(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        left = state_of(output)
        last[:] = [(left, left._version, vector_norms(first(state_of(args)).flatten(1)))]

    def ended(block: int) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            out = state_of(output)
            # The same tensor, and nothing added to it in place since.
            if last and last[0][0] is out and last[0][1] == out._version:
                found[block] = last[0][2]

        return hook

    with hooks() as handles, torch.no_grad():
        for block, module in enumerate(task.blocks.modules):
            inside = [part for part in module.modules() if isinstance(part, NORMALISERS)]
            handles += [part.register_forward_hook(normalised) for part in inside]
            handles.append(module.register_forward_hook(ended(block)))
        task.blocks.run(full, x)
    return found
