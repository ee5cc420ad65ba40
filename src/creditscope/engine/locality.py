"""Locality, proved: other weights in the later blocks, and the update of an earlier one stays as it was.

A rule with a loss of its own in each block is asked as such only after this. It is put to it before it trains, in
float64, in every kind of step that it knows, and over two steps, so that what it keeps in its state is asked too.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from creditscope.blocks import CreditRule, Task
from creditscope.data.order import seeded_generator
from creditscope.engine.step import Sent, take_step
from creditscope.probes.epoch_cosines import in_float64

# Relative, in float64: what differs by less is rounding.
_SAME = 1e-9
_STEPS = 2


class _Run(NamedTuple):
    """One rule at the start of a run.

    Args:
        rule: The rule.
        task: What is trained.
        phase: Which kind of step.
        parts: Which part each parameter belongs to, as numbers: −1 the embedding, L the readout.
    """

    rule: CreditRule
    task: Task
    phase: str
    parts: Mapping[str, int]

    def updates(self, sent: Sent) -> list[dict[str, Tensor]]:
        """The gradients of a few steps with the weights held, the rule's state going on from each to the next."""
        found = []
        for _ in range(_STEPS):
            step = take_step(self.rule, self.task, frozenset(sent.params), self.phase, sent)
            found.append(step.grads)
            learned = {name: sent.state[name] - step.grads[name] for name in step.grads if name in sent.state}
            sent = sent._replace(
                state={**sent.state, **learned, **step.state}, buffers={**sent.buffers, **step.buffers}
            )
        return found

    def local(self, sent: Sent) -> bool:
        """Whether no block's update notices the weights after it; one that has none shows nothing."""
        if not self.rule.moves(self.phase).weights:
            return True
        depth = self.task.blocks.depth
        own = self.updates(sent)
        named = {part: [name for name, at in self.parts.items() if at == part] for part in range(-1, depth)}
        if not all(_any(own, named[part]) for part in range(depth) if named[part]):
            return False
        # The readout is what the last block's own loss reads: for it, there is nothing later.
        for part in range(-1, depth - 1):
            changed = self.updates(sent._replace(params=_changed(sent.params, self.parts, part)))
            if not all(_alike(a[name], b[name]) for a, b in zip(own, changed, strict=True) for name in named[part]):
                return False
        return True


def is_local(rule: CreditRule, task: Task, phases: Sequence[str], sent: Sent, parts: Mapping[str, str | int]) -> bool:
    """Whether a block's update stays the same when all weights after it are others.

    Args:
        rule: The rule of one run.
        task: What is trained.
        phases: Every kind of step that it takes.
        sent: From what that run would take a step, on a few samples.
        parts: Which part each parameter belongs to (``Blocks.parts``).
    """
    order = {"embedding": -1, "readout": task.blocks.depth}
    known = {name: part if isinstance(part, int) else order[part] for name, part in parts.items()}
    x = sent.x.double() if sent.x.is_floating_point() else sent.x
    params, state, buffers, numbers, noise = map(in_float64, sent[:5])
    double = Sent(params, state, buffers, numbers, noise, x, sent.y)
    return all(_Run(rule, task, phase, known).local(double) for phase in phases)


def _changed(params: Mapping[str, Tensor], parts: Mapping[str, int], upto: int) -> dict[str, Tensor]:
    """Every weight after a part moved by as much as it is large; the same numbers whatever the part."""
    found = {}
    for name, p in params.items():
        size = p.square().mean().sqrt()
        noise = torch.randn(p.shape, generator=seeded_generator(0, f"locality/{name}"), dtype=p.dtype).to(p.device)
        found[name] = p + noise * torch.where(size > 0, size, 1) if parts[name] > upto else p
    return found


def _any(steps: list[dict[str, Tensor]], names: list[str]) -> bool:
    return any(bool(grads[name].any()) for grads in steps for name in names if name in grads)


def _alike(a: Tensor, b: Tensor) -> bool:
    # NaN is like nothing: what cannot be compared is not shown.
    return bool((a - b).norm() <= _SAME * a.norm())
