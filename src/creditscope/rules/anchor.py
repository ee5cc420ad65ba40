"""Anchors: a few batches of true backprop in every epoch, beside a rule or alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, CreditRule, Identity, Moment, Moves, Params, Proof, RuleState, Step, Task
from creditscope.errors import BadInput
from creditscope.records.method import ANCHOR
from creditscope.records.rule_card import Sketch
from creditscope.rules.backprop import Backprop
from creditscope.rules.wrappers import Penalised, Wrapper

_PHASE = "anchor"


@dataclass(frozen=True)
class Idle(CreditRule):
    """Nothing trains by itself: with its anchors it is the control of every ``+anchorN``, backprop on N batches alone.

    Between anchors parameters, moments and the optimiser's own count of steps stay as they are.
    """

    name = ANCHOR
    family = "signal"
    formula = "c_l = g_l on N batches of every epoch; on all others nothing trains"
    paper = "control of this package"
    injection = "exact gradient at the logits, carried back through every block, on N batches of every epoch"
    sketch = Sketch(text="exact gradient, on a few batches alone", route="chain")
    penalty = "global"
    identity = Identity(
        needs=("on N batches of every epoch all that backprop needs",),
        spares=("every other batch",),
        proofs=(
            Proof("only its batches train", "test_alone_only_its_batches_train"),
            Proof("at every batch it is bp", "test_anchored_at_every_batch_it_is_backprop"),
        ),
    )

    def moves(self, phase: str) -> Moves:
        """Nothing."""
        return Moves(weights=False, state=False)

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The loss alone."""
        return Step(task.loss(task.forward(params, batch.x).logits, batch.y), {})

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The true gradient at every state, where it is given at all."""
        return Backprop().deliver(task, params, state, batch)

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact everywhere."""
        return (True,) * (depth + 1)


def unanchored(rule: CreditRule) -> CreditRule:
    """A rule without its anchors: what it claims, and what a probe asks of it, is its own.

    Args:
        rule: Any rule.
    """
    return rule.rule if isinstance(rule, Anchored) else rule


@dataclass(frozen=True)
class Anchored(Wrapper):
    """The same rule with N true-backprop batches an epoch, the k-th at batch ⌊(k + ½)·n/N⌋ of n.

    They share the moments of the weights. What the rule itself learns, its feedback or decoders, does not move in
    them.

    Args:
        rule: The rule.
        batches: N.
    """

    batches: int

    def __post_init__(self) -> None:
        if isinstance(self.rule, Backprop):
            raise BadInput("bp is backprop at every batch already; drop +anchor")

    @property
    def formula(self) -> str:
        """The rule's own, with its anchors."""
        if isinstance(self.rule, Idle):
            return self.rule.formula
        return f"{self.rule.formula}; backprop on {self.batches} batches of every epoch"

    @property
    def penalises(self) -> bool:
        """Each kind of step adds the penalty as its own rule does."""
        return True

    def phase(self, moment: Moment) -> str:
        """An anchor, or what the rule says."""
        n = moment.steps_per_epoch
        if self.batches > n:
            raise BadInput(f"+anchor{self.batches}: an epoch has {n} batches; wanted at most as many anchors")
        at = moment.step % n
        anchors = ((2 * k + 1) * n // (2 * self.batches) for k in range(self.batches))
        return _PHASE if at in anchors else self.rule.phase(moment)

    def moves(self, phase: str) -> Moves:
        """In an anchor, the weights alone."""
        return Moves(state=False) if phase == _PHASE else self.rule.moves(phase)

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """Backprop's in an anchor, with the penalty in its global loss; else the rule's own."""
        if phase == _PHASE:
            return Backprop().step(task, params, {}, batch, {}, "")
        if task.penalty is None:
            return self.rule.step(task, params, state, batch, noise, phase)
        penalised = Penalised(self.rule, task.penalty)
        return penalised.step(task._replace(penalty=None), params, state, batch, noise, phase)
