"""One observation of a run on one batch: states, references, delivered credit. Pure, so it can be mapped over runs."""

from typing import NamedTuple

import torch
from torch import Tensor

from creditscope.blocks.partition import Params
from creditscope.blocks.rule import CreditRule, RuleState
from creditscope.blocks.task import Batch, Task


class Observation(NamedTuple):
    """What a probe may see of one batch; first axis samples everywhere.

    Args:
        states: h_0..h_L.
        branches: f_0..f_{L−1}.
        references: g_0..g_L, the true gradient per sample, sum-reduced.
        delivered: c_0..c_L, or None where the rule is not known or delivers no credit at the states.
        error: e = ∂ℓ/∂logits.
        logits: The output.
        loss: Task loss per sample.
    """

    states: tuple[Tensor, ...]
    branches: tuple[Tensor, ...]
    references: tuple[Tensor, ...]
    delivered: tuple[Tensor, ...] | None
    error: Tensor
    logits: Tensor
    loss: Tensor


def observe(task: Task, params: Params, rule: CreditRule | None, state: RuleState, batch: Batch) -> Observation:
    """Observe one run on one batch.

    Args:
        task: What is trained.
        params: Parameters now (buffers are added from the task).
        rule: The rule, or None for a model whose credit is not known.
        state: The rule's state.
        batch: The probe batch.
    """
    taps = zero_taps(task, batch.x, params)

    def run(taps: dict[int, Tensor]) -> tuple[Tensor, tuple[tuple[Tensor, ...], tuple[Tensor, ...], Tensor]]:
        seen = task.forward(params, batch.x, taps=taps)
        return task.loss(seen.logits, batch.y), (seen.states, seen.branches, seen.logits)

    loss, pullback, (states, branches, logits) = task.blocks.vjp(run, taps, has_aux=True)
    gradients = pullback(torch.ones_like(loss))[0]
    references = tuple(
        torch.zeros_like(taps[level]) if gradients[level] is None else gradients[level] for level in sorted(taps)
    )
    error = task.error(logits, batch.y)
    if rule is None or rule.family != "signal":
        delivered = None
    elif all(rule.exact(task.blocks.depth)):
        delivered = references
    else:
        delivered = rule.deliver_observed(task, params, state, batch, states[-1], error)
    return Observation(states, branches, references, delivered, error, logits, loss)


def zero_taps(task: Task, x: Tensor, params: Params) -> dict[int, Tensor]:
    """Zero tensors shaped like the states of a batch, in the parameters' dtype."""
    like = next(iter(params.values()))
    return {
        level: torch.zeros((len(x), *shape), dtype=like.dtype, device=x.device)
        for level, shape in enumerate(task.shapes)
    }
