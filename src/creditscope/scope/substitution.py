"""Whether the credit that is read at a block's end is what its weights train on: pulled back and compared with .grad.

Where they disagree there are two cases, told apart by sending noise into the block in the place of its credit. Feedback
alignment inside the block carries the credit on by another way than the derivative: its weights follow the noise. A
signal that is put in inside the block has nothing to do with what arrives at its end: some weight does not notice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from creditscope.blocks import Batch, Task
from creditscope.errors import BadInput
from creditscope.probes.functional.cosine import cosines
from creditscope.probes.seeds import gaussian, probe_generator
from creditscope.scope.credit import BackwardCredit

# Rounding, also in bfloat16, leaves more of a gradient's direction.
_AGREES = 0.99
# A tensor whose gradient is smaller than this share of its block's largest may be rounding alone.
_SMALL = 1e-4
# Noise of the size of the credit turns a gradient that follows it by more than this share of its length.
_NOTICES = 0.5


def verified(task: Task, credit: BackwardCredit, batch: Batch) -> tuple[BackwardCredit, tuple[str, ...]]:
    """The credit without what is read where no weight trains on it, and what is to be said of that.

    Args:
        task: The partitioned model.
        credit: Whose signals.
        batch: A few samples.
    """
    signals, written = credit.read(task, batch)
    names = task.blocks.names
    if all(c is None for c in signals[1:]):
        raise BadInput(
            "no signal arrives at the end of any block in the backward pass: the blocks learn from losses of their "
            "own, or write .grad by hand; leave credit out, and audit the updates with cs.audit_updates"
        )
    odd = unlike_blocks(task, batch, signals, written)
    carried: list[int] = []
    if odd:
        generator = probe_generator(0, 0, "instead", batch.y.device)

        def noise(_: int, grad: Tensor) -> Tensor:
            return (gaussian(tuple(grad.shape), generator) * grad.double().square().mean().sqrt()).to(grad)

        _, told = credit.read(task, batch, noise)
        carried = [at for at in odd if at not in deaf_blocks(task, written, told)]
        odd = tuple(at for at in odd if at not in carried)
    silent = [names[at] for at in range(len(names)) if signals[at + 1] is None]
    notes = [
        *(
            f"credit is substituted inside block {names[at]}: its weights train on another signal than the one that "
            "arrives at its end, which is not compared with the gradient; cut where the method puts its signal in, or "
            "judge the updates"
            for at in odd
        ),
        *(
            [
                f"inside block {', '.join(names[at] for at in carried)} credit goes on by another way than the "
                "derivative: the cosine at its end says what arrives there, its gradient cosine what its weights "
                "are told"
            ]
            if carried
            else []
        ),
        *([f"no signal arrives at the end of block {', '.join(silent)}"] if silent else []),
    ]
    return replace(credit, unread=tuple(at + 1 for at in odd)), tuple(notes)


def unlike_blocks(
    task: Task, batch: Batch, signals: Sequence[Tensor | None], written: Mapping[str, Tensor]
) -> tuple[int, ...]:
    """Blocks in which some weight does not train on the true derivative of the credit that arrives at the block's end.

    The credit of every state is carried back through its own block by the true derivative; what results for the
    weights is compared, tensor by tensor and whatever the scale, with what the backward pass wrote.

    Args:
        task: The partitioned model.
        batch: The samples.
        signals: c_0..c_L as they were read; None where none arrived.
        written: ``.grad`` of the same pass.
    """
    named = dict(task.blocks.model.named_parameters())
    params = {name: p.detach() for name, p in named.items()}
    states, pullback = task.blocks.vjp(lambda live: task.forward(live, batch.x, detach=True).states[1:], params)
    cotangents = tuple(torch.zeros_like(h) if c is None else c.to(h) for c, h in zip(signals[1:], states, strict=True))
    found = {name: g for name, g in pullback(cotangents)[0].items() if g is not None and named[name].requires_grad}
    sizes = {name: float(torch.linalg.vector_norm(g.double())) for name, g in found.items()}
    block_of = {name: task.blocks.block_of(name) for name in found}
    odd = set()
    for name, own in found.items():
        block = block_of[name]
        if block is None or signals[block + 1] is None:
            continue
        largest = max(sizes[other] for other in found if block_of[other] == block)
        if sizes[name] <= _SMALL * largest:
            continue
        if name not in written or not _agree(own, written[name]):
            odd.add(block)
    return tuple(sorted(odd))


def deaf_blocks(task: Task, written: Mapping[str, Tensor], told: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Blocks in which some weight trains as before when noise arrives at the block's end.

    Args:
        task: The partitioned model.
        written: ``.grad`` of the pass as it is.
        told: ``.grad`` of the pass with noise.
    """
    found = set()
    for name, before in written.items():
        block = task.blocks.block_of(name)
        after = told.get(name)
        size = float(torch.linalg.vector_norm(before.to_dense().double()))
        if block is None or after is None or not size:
            continue
        if float(torch.linalg.vector_norm((after - before).to_dense().double())) < _NOTICES * size:
            found.add(block)
    return tuple(sorted(found))


def _agree(own: Tensor, written: Tensor) -> bool:
    value, defined = cosines(own.flatten().double(), written.to_dense().flatten().double())
    return bool(defined) and float(value) >= _AGREES
