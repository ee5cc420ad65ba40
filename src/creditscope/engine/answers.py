"""How runs answer on the test split: by their output, or as their rule says."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import vmap

from creditscope.blocks import RuleState
from creditscope.engine.optim import Stack
from creditscope.engine.step import with_numbers

if TYPE_CHECKING:
    from creditscope.engine.fleet import Fleet
    from creditscope.engine.groups import Group


def in_own_ways(fleet: "Fleet", logits: Tensor, x: Tensor) -> Tensor:
    """Logits of all runs on a batch, those of a rule's own way to answer in the place of the output's.

    A frozen twin is judged by its output: how untrained blocks answer says nothing, and a claim would beat it idly.

    Args:
        fleet: The runs.
        logits: Their outputs, first axis runs.
        x: Inputs.
    """
    for group in (group for group in fleet.groups if group.rule.answers):
        found = _answered(fleet, group, x)
        trains = torch.tensor([spec.train_last != 0 for spec in fleet.specs[group.runs]], device=x.device)
        own = torch.where(trains[:, None, None], found, logits[group.runs])
        logits = torch.cat([logits[: group.start], own, logits[group.stop :]])
    return logits


def _answered(fleet: "Fleet", group: "Group", x: Tensor) -> Tensor:
    def one(params: Stack, state: RuleState, buffers: Stack, numbers: Stack) -> Tensor:
        rule = with_numbers(group.rule, {name: value for name, value in numbers.items() if name != "penalty"})
        return rule.answered(fleet.task._replace(buffers=buffers), params, state, x)

    params, buffers = ({name: t[group.runs] for name, t in stack.items()} for stack in (fleet.params, fleet.buffers))
    return vmap(one)(params, group.state, buffers, group.numbers)
