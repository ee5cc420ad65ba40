"""The fresh-feedback null of the gradient cosine, per block."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from creditscope.blocks import CreditRule, RuleState, Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.functional.cosine import cosines, sum_cosines, units
from creditscope.probes.functional.gradient import one_vector
from creditscope.probes.nulls import null_test, redraw, redrawable
from creditscope.probes.parameters import block_parameters
from creditscope.probes.probe import Measured, Need, Probe, by_state, float64_copy

# The gradient null differentiates by every block parameter once a redraw and decides nothing: fewer suffice, and on
# large models no more than this many entries of states and parameters are gone through, but at least 19 redraws.
REDRAWS = (19, 199)
_WORK_CPU, _WORK_GPU = 2**26, 2**32
# On a CPU a chunk is smaller than memory allows, by this factor: it should stay in the cache.
_HELD_CPU = 8


@dataclass(frozen=True)
class GradientNull(Probe):
    """Is the parameter gradient aligned, or would any other feedback do as well?

    Measures: gradient cosine per block against 19 to 199 redraws of the whole feedback (it decides nothing).
    Healthy: p < .01 in every trained block.
    Fooled by: blocks whose gradient does not depend on the feedback; they have no null (None).
    Null: itself.

    Args:
        redraws: K; capped at 199, and lower on large models.
        keep_draws: Whether the null values themselves go into the row.
    """

    redraws: int = 999
    keep_draws: bool = False

    name: ClassVar[str] = "gradient null"
    unit: ClassVar[str] = "cosine"
    needs: ClassVar[tuple[Need, ...]] = ("train", "feedback")
    fields: ClassVar[tuple[str, ...]] = ("gradient_null",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """The rule's own assignment of one batch, mapped over redraws."""
        rule = redrawable(snapshot, self.redraws)
        double = float64_copy(snapshot)
        blocks = block_parameters(snapshot)
        written = double.rule_grads
        absent = [name for names in blocks for name in names if name not in written]
        if absent:
            raise NotMeasured(f"gradient null: the backward pass wrote no gradient of {absent[0]}; keep every block's")
        own, reference = (
            [one_vector([grads[name] for name in names]) for names in blocks] for grads in (written, double.bp_grads)
        )
        observed = by_state(lambda c, g: cosines(c, g)[0], own, reference)
        null = _redrawn_gradients(double, rule, self.redraws, blocks, reference)
        fixed = (null.amax(dim=0) - null.amin(dim=0) <= 1e-9).tolist()
        return Measured({"gradient_null": null_test(observed, null, fixed, self.keep_draws)})


def _redrawn_gradients(
    double: Snapshot, rule: CreditRule, redraws: int, blocks: list[list[str]], reference: list[Tensor]
) -> Tensor:
    """Gradient cosine per redraw and block."""
    train = double.train
    assert train is not None
    inside = {name for names in blocks for name in names}
    # What is no block's parameter is held fixed: its gradient is never formed.
    rest = {name: p for name, p in double.params.items() if name not in inside}
    task = double.task._replace(fixed={**double.task.fixed, **rest})
    params = {name: p for name, p in double.params.items() if name in inside}

    def assign(feedback: RuleState) -> tuple[Tensor, ...]:
        state = {**double.state, **feedback}
        grads = rule.step(task, params, state, train, double.noise, double.task.phase).grads
        return tuple(one_vector([grads[name] for name in names]) for names in blocks)

    states = sum(math.prod(shape) for shape in double.task.shapes) * len(train.x)
    cost = states + sum(p.numel() for p in params.values())
    fewest, most = REDRAWS
    work = _WORK_GPU if train.x.is_cuda else _WORK_CPU
    redraws = min(redraws, most, max(fewest, work // cost))
    # One sample, the batch, with one reference.
    pairs = [units(g.reshape(1, 1, -1)) for g in reference]
    unit, defined = [pair[0] for pair in pairs], torch.stack([pair[1] for pair in pairs])
    rows = []
    for _, chunk in redraw(double, "gradient-null", redraws, cost if train.x.is_cuda else _HELD_CPU * cost):
        total, count = sum_cosines([c.unsqueeze(1) for c in vmap(assign)(chunk)], unit, defined)
        rows.append((total / count).squeeze(2).T)
    return torch.cat(rows)
