"""Order inside a fleet: runs of one rule are neighbours, and inside a rule those that train alike."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from creditscope.blocks import CreditRule, Feedback, Task
from creditscope.data.order import seeded_generator
from creditscope.engine.optim import Segment, Stack
from creditscope.records import RunSpec
from creditscope.rules import build_rule

# Entries of one run's state on a batch from which on a GPU is bound by arithmetic.
LARGE = 2**18


@dataclass(frozen=True)
class Group:
    """Neighbouring runs with one rule.

    Args:
        rule: The rule.
        start: First run.
        stop: One past the last.
        feedback: Stacked over the group's runs.
        penalty: λ per run, or None where no run has one.
        exact: Per state, whether the credit is exact by construction.
        trained: Names of the parameters that train in some run; no other gradient is formed.
    """

    rule: CreditRule
    start: int
    stop: int
    feedback: Feedback
    penalty: Tensor | None
    exact: tuple[bool, ...]
    trained: frozenset[str]

    @property
    def runs(self) -> slice:
        """Its runs in the fleet."""
        return slice(self.start, self.stop)


def fleet_order(spec: RunSpec) -> tuple[str, str, bool, str, bool, float, str]:
    """Sorts runs so that rules, masks and learning rates are neighbours; the run id makes it total."""
    return (*_rule_order(spec), _is_frozen(spec), *_training_order(spec), spec.run_id)


def _rule_order(spec: RunSpec) -> tuple[str, str]:
    return spec.rule, spec.credit_norm or "none"


def _is_frozen(spec: RunSpec) -> bool:
    return spec.train_last == 0


def _training_order(spec: RunSpec) -> tuple[str, bool, float]:
    assert spec.optimiser is not None
    return str(spec.train_last), spec.train_embedding is not False, spec.optimiser.lr


def build_groups(
    specs: Sequence[RunSpec], task: Task, params: Stack, trained: Sequence[frozenset[str]]
) -> Iterator[Group]:
    """One group a rule, with the feedback of each run drawn from its own stream.

    Where arithmetic is the bound frozen twins are a group apart: their blocks need no gradient. A GPU is bound by the
    number of kernels until the states are large; up to there they share those of their rule.

    Args:
        specs: The runs, in fleet order.
        task: What is trained.
        params: Stacked parameters at initialisation.
        trained: Names of the parameters that train, run by run.
    """
    like = next(iter(params.values()))
    start = 0
    entries = (specs[0].batch or 1) * max(math.prod(shape) for shape in task.shapes)
    apart = like.device.type == "cpu" or entries > LARGE
    for _, members in groupby(specs, key=lambda spec: (*_rule_order(spec), apart and _is_frozen(spec))):
        runs = list(members)
        rule = build_rule(runs[0].rule, runs[0].credit_norm or "none")
        drawn = [
            rule.init(task, {name: p[run] for name, p in params.items()}, seeded_generator(spec.seed or 0, "feedback"))
            for run, spec in enumerate(runs, start)
        ]
        feedback = {name: torch.stack([d[name] for d in drawn]) for name in drawn[0]}
        weights = torch.tensor([spec.penalty or 0.0 for spec in runs], device=like.device, dtype=like.dtype)
        penalty = weights if bool((weights > 0).any()) else None
        stop = start + len(runs)
        some = frozenset[str]().union(*trained[start:stop])
        yield Group(rule, start, stop, feedback, penalty, rule.exact(task.blocks.depth), some)
        start = stop


def build_segments(specs: Sequence[RunSpec], trained: Sequence[frozenset[str]]) -> Iterator[Segment]:
    """Inside each group, neighbours that train the same parameters at the same learning rate.

    Args:
        specs: The runs, in fleet order.
        trained: Names of the parameters that train, run by run.
    """
    start = 0
    for (*_, lr), members in groupby(specs, key=lambda spec: (*_rule_order(spec), *_training_order(spec))):
        stop = start + len(list(members))
        yield Segment(start, stop, lr, trained[start])
        start = stop
