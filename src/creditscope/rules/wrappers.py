"""What wraps any rule: the penalty on the branches, credit divided by its RMS, feedback that stays as it was drawn."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from creditscope.blocks import (
    Batch,
    CreditRule,
    Identity,
    Moment,
    Moves,
    NullKind,
    Params,
    Redraw,
    RuleState,
    Step,
    Task,
    penalty_gradient,
)
from creditscope.errors import BadInput
from creditscope.records import FeedbackSpec
from creditscope.records.method import Option
from creditscope.records.rule_card import Family, PenaltyKind, Sketch


@dataclass(frozen=True)
class Wrapper(CreditRule):
    """A rule as it is; a subclass changes one thing.

    Args:
        rule: The rule.
    """

    rule: CreditRule

    @property
    def name(self) -> str:
        """The rule's own."""
        return self.rule.name

    @property
    def family(self) -> Family:
        """The rule's own."""
        return self.rule.family

    @property
    def formula(self) -> str:
        """The rule's own."""
        return self.rule.formula

    @property
    def paper(self) -> str:
        """The rule's own."""
        return self.rule.paper

    @property
    def injection(self) -> str:
        """The rule's own."""
        return self.rule.injection

    @property
    def sketch(self) -> Sketch:
        """The rule's own."""
        return self.rule.sketch

    @property
    def penalty(self) -> PenaltyKind:
        """The rule's own."""
        return self.rule.penalty

    @property
    def learns(self) -> bool:
        """The rule's own."""
        return self.rule.learns

    @property
    def null_kind(self) -> NullKind:
        """The rule's own."""
        return self.rule.null_kind

    @property
    def penalises(self) -> bool:
        """The rule's own."""
        return self.rule.penalises

    @property
    def normalisable(self) -> bool:
        """The rule's own."""
        return self.rule.normalisable

    @property
    def answers(self) -> bool:
        """The rule's own."""
        return self.rule.answers

    @property
    def feedback_spec(self) -> FeedbackSpec:
        """The rule's own."""
        return self.rule.feedback_spec

    @property
    def identity(self) -> Identity:
        """The rule's own."""
        return self.rule.identity

    @property
    def options(self) -> dict[str, Option]:
        """The rule's own."""
        return self.rule.options

    def with_numbers(self, numbers: Mapping[str, Tensor]) -> Self:
        """The rule's own."""
        return replace(self, rule=self.rule.with_numbers(numbers))

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """The rule's own."""
        return self.rule.init(task, params, generator)

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The rule's own."""
        return self.rule.step(task, params, state, batch, noise, phase)

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """The rule's own."""
        return self.rule.noise(task, params, batch)

    def phase(self, moment: Moment) -> str:
        """The rule's own."""
        return self.rule.phase(moment)

    def moves(self, phase: str) -> Moves:
        """The rule's own."""
        return self.rule.moves(phase)

    def answered(self, task: Task, params: Params, state: RuleState, x: Tensor) -> Tensor:
        """The rule's own."""
        return self.rule.answered(task, params, state, x)

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """The rule's own."""
        return self.rule.trained(state, params)

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The rule's own."""
        return self.rule.deliver(task, params, state, batch)

    def deliver_observed(
        self, task: Task, params: Params, state: RuleState, batch: Batch, top: Tensor, error: Tensor
    ) -> tuple[Tensor, ...]:
        """The rule's own."""
        return self.rule.deliver_observed(task, params, state, batch, top, error)

    def redraw(self, task: Task, params: Params, state: RuleState) -> Redraw:
        """The rule's own."""
        return self.rule.redraw(task, params, state)

    def exact(self, depth: int) -> tuple[bool, ...]:
        """The rule's own."""
        return self.rule.exact(depth)


@dataclass(frozen=True)
class Penalised(Wrapper):
    """λ·mean_batch ‖f_l(h_l)‖² is added for every block: to the global loss, or to the block's own update alone.

    Args:
        rule: The rule, whose ``penalty`` is not ``none``.
        weight: λ.
    """

    weight: Tensor

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """Added on the rule's own way back where the rule does so itself or it is global; else in a pass of its own."""
        penalised = task._replace(penalty=self.weight)
        if self.rule.penalty == "global" or self.rule.penalises:
            return self.rule.step(penalised, params, state, batch, noise, phase)
        step = self.rule.step(task, params, state, batch, noise, phase)
        local = penalty_gradient(penalised, params, batch)
        added = {name: grad + local[name] if name in local else grad for name, grad in step.grads.items()}
        return step._replace(grads=added)


@dataclass(frozen=True)
class Normalised(Wrapper):
    """Each sample's credit is divided by (its root mean square + 1e-6) at each state: the published audit's DFA."""

    def __post_init__(self) -> None:
        if not self.rule.normalisable:
            raise BadInput(
                f"-rms divides the signal that each block receives, and {self.rule.name} sends none; drop -rms"
            )

    @property
    def formula(self) -> str:
        """The rule's own, divided."""
        return f"{self.rule.formula}; each sample's credit divided by its RMS"

    @property
    def injection(self) -> str:
        """The rule's own, divided."""
        where, *rest = self.rule.injection.split("; ")
        return "; ".join([f"{where}, divided by its RMS per sample", *rest])

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The rule's own, divided."""
        return self.rule.step(task._replace(normalise=True), params, state, batch, noise, phase)

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The rule's own, divided."""
        return self.rule.deliver(task._replace(normalise=True), params, state, batch)

    def deliver_observed(
        self, task: Task, params: Params, state: RuleState, batch: Batch, top: Tensor, error: Tensor
    ) -> tuple[Tensor, ...]:
        """The rule's own, divided."""
        return self.rule.deliver_observed(task._replace(normalise=True), params, state, batch, top, error)


@dataclass(frozen=True)
class FixedFeedback(Wrapper):
    """The same rule with a state that stays at its start: the control of a feedback that learns."""

    def __post_init__(self) -> None:
        if not self.rule.learns:
            raise BadInput(f"@fixed-feedback: nothing of {self.rule.name} learns but the weights; drop it")

    @property
    def learns(self) -> bool:
        """No: the state stays at its start."""
        return False

    @property
    def null_kind(self) -> NullKind:
        """Fresh feedback: what stays as it was drawn can be drawn again."""
        return "fresh feedback"

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """None."""
        return frozenset()

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The rule's own, without what it says of the state."""
        step = self.rule.step(task, params, state, batch, noise, phase)
        grads, decay = ({n: t for n, t in given.items() if n not in state} for given in (step.grads, step.decay))
        return step._replace(grads=grads, decay=decay, state={})
