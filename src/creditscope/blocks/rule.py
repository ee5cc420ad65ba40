"""CreditRule: how a rule tells every block what to change. Written for one run; it knows nothing of other runs."""

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from creditscope.blocks.feedback import FeedbackInit
from creditscope.blocks.identity import Identity
from creditscope.blocks.partition import Params
from creditscope.blocks.task import Batch, Task
from creditscope.errors import NotMeasured
from creditscope.records import FeedbackSpec
from creditscope.records.method import Option
from creditscope.records.rule_card import Family, PenaltyKind, RuleCard, Sketch

# Whatever a rule keeps from step to step, by name: feedback, auxiliary nets, running averages.
RuleState = dict[str, Tensor]
Redraw = Callable[[torch.Generator, int], RuleState]
NullKind = Literal["fresh feedback", "rotated credit"]


class Moment(NamedTuple):
    """When a step is taken.

    Args:
        step: Steps done before it.
        steps_per_epoch: Steps in an epoch.
        epochs: Epochs planned.
    """

    step: int
    steps_per_epoch: int
    epochs: int


class Moves(NamedTuple):
    """What one kind of step moves.

    Args:
        weights: The parameters that train.
        state: The entries of the rule's state that the optimiser trains.
    """

    weights: bool = True
    state: bool = True


class Step(NamedTuple):
    """What one step of a rule gives.

    Args:
        loss: Task loss per sample, never with a penalty in it.
        grads: What the optimiser gets for the mean over the batch, by the name of a parameter or of a trained entry of
            the state. Any other name is an error.
        state: New values of entries that the rule itself updates; entries that are not named stay as they are.
        buffers: New values of the model's buffers, likewise.
        decay: Decoupled decay on top of the run's own, by a name in ``grads``, in the unit of the optimiser's: before
            the optimiser's step the tensor is multiplied by 1 − learning rate·decay.
    """

    loss: Tensor
    grads: dict[str, Tensor]
    state: Mapping[str, Tensor] = {}
    buffers: Mapping[str, Tensor] = {}
    decay: Mapping[str, Tensor] = {}


class CreditRule(ABC):
    """A credit rule. A subclass is a frozen dataclass whose fields are its options.

    Options are numbers, booleans or texts with a default. Inside ``step`` a float option is a scalar tensor, because
    runs that differ in it are stacked; all other options are plain values. State is passed in and returned: the rule
    itself keeps none. Class attributes (``name``, ``family``, ``formula``, ``paper``, ...) say what the rule is: logs,
    help, figures and reports quote them.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in method names: lower-case letters, digits and dashes."""

    @property
    @abstractmethod
    def family(self) -> Family:
        """``signal``, ``update`` or ``objective``: what the rule delivers, and so what it can be asked."""

    @property
    @abstractmethod
    def formula(self) -> str:
        """The rule in one line."""

    @property
    @abstractmethod
    def paper(self) -> str:
        """Where it was published; ``this package`` or ``unpublished`` where it was not."""

    @property
    @abstractmethod
    def injection(self) -> str:
        """In words, where the credit enters."""

    @property
    def sketch(self) -> Sketch:
        """How a picture of the network shows it."""
        return Sketch(text=self.injection)

    @property
    def penalty(self) -> PenaltyKind:
        """Whether a penalty on the branches stays in its block, joins the global loss, or does not apply."""
        return "none"

    @property
    def learns(self) -> bool:
        """Whether the rule changes its state in training; if not, ``step`` may neither return nor train any of it."""
        return False

    @property
    def null_kind(self) -> NullKind:
        """What its cosine is compared with, where that is redrawn: credit from fresh feedback or its own, rotated.

        Feedback that learned is no draw, and where nothing is drawn nothing can be drawn again.
        """
        return "rotated credit" if self.learns else "fresh feedback"

    @property
    def penalises(self) -> bool:
        """Whether ``step`` adds the gradient of ``task.penalty`` itself, inside each block, as a detached pass does."""
        return False

    @property
    def normalisable(self) -> bool:
        """Whether the rule sends each block a signal of its own, which ``task.normalise`` divides by its RMS."""
        return False

    @property
    def answers(self) -> bool:
        """Whether the trained net answers in another way than by its output: as ``answered`` says."""
        return False

    @property
    def feedback_spec(self) -> FeedbackSpec:
        """How the feedback is drawn (without seed and hash)."""
        return FeedbackSpec()

    @property
    def identity(self) -> Identity:
        """What it needs, what proves it, what was reported, how public code differs."""
        return Identity()

    @property
    def options(self) -> dict[str, Option]:
        """Every option with its value."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def card(self) -> RuleCard:
        """The rule's description, for the log."""
        return RuleCard(
            name=self.name,
            family=self.family,
            formula=self.formula,
            paper=self.paper,
            penalty=self.penalty,
            learns=self.learns,
            options=self.options,
            sketch=self.sketch,
        )

    def with_numbers(self, numbers: Mapping[str, Tensor]) -> Self:
        """The same rule with tensors in the place of some float options.

        Args:
            numbers: By option.
        """
        if not numbers:
            return self
        other = copy.copy(self)
        for name, value in numbers.items():
            object.__setattr__(other, name, value)
        return other

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """The state before the first step: drawn on the CPU, so the same on every device.

        Args:
            task: What is trained.
            params: Parameters at initialisation; the state takes their dtype and device.
            generator: CPU generator of the run's own seed.
        """
        return {}

    @abstractmethod
    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The update signal of every parameter on one batch, and what the step makes of the state.

        Args:
            task: What is trained, with the model's buffers as they are now.
            params: The parameters that train.
            state: The rule's state now.
            batch: The batch.
            noise: Fresh standard normal numbers of the shapes that ``noise`` asked for.
            phase: What ``phase`` chose for this step.
        """

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the random numbers that a step wants; the run's own seed draws them again for each step.

        Args:
            task: What is trained.
            params: The parameters.
            batch: Samples in a batch.
        """
        return {}

    def phase(self, moment: Moment) -> str:
        """Which kind of step comes next, for rules with several, such as a mirror phase. Floats are unknown here.

        Args:
            moment: When.
        """
        return ""

    def moves(self, phase: str) -> Moves:
        """What a step of this kind moves; what it does not move keeps its moments too, and feels no decay.

        ``step`` gives gradients for what moves and for nothing else.

        Args:
            phase: What ``phase`` chose.
        """
        return Moves()

    def answered(self, task: Task, params: Params, state: RuleState, x: Tensor) -> Tensor:
        """Logits by which test accuracy is counted, where ``answers`` says so and some block trains.

        Args:
            task: What is trained.
            params: Parameters now.
            state: The rule's state now.
            x: Inputs.
        """
        return task.forward(params, x).logits

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """Entries of the state that the run's optimiser trains, with its decay, by the gradients of ``step``.

        Args:
            state: The state.
            params: Names of the parameters that train.
        """
        return frozenset()

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The task credit c_0..c_L per sample, sum-reduced, at the states where it acts; the signal family alone.

        Args:
            task: What is trained.
            params: Parameters now.
            state: The rule's state now.
            batch: The batch.
        """
        raise NotMeasured(f"{self.name} is of the {self.family} family: it delivers no credit at the states")

    def deliver_observed(
        self, task: Task, params: Params, state: RuleState, batch: Batch, top: Tensor, error: Tensor
    ) -> tuple[Tensor, ...]:
        """As ``deliver``, with h_L and e of a forward pass already made; a rule that needs more makes its own pass.

        Args:
            task: What is trained.
            params: Parameters now.
            state: The rule's state now.
            batch: The batch.
            top: h_L.
            error: e per sample.
        """
        return self.deliver(task, params, state, batch)

    def redraw(self, task: Task, params: Params, state: RuleState) -> Redraw:
        """How fresh feedback is drawn for a null: as the run's own was. Here, by ``init`` again and again.

        Args:
            task: What is trained.
            params: Parameters at initialisation.
            state: The run's own state; entries that are not drawn stay as they are there.

        Returns:
            A function of a generator, which may live on another device, and a number of draws. It gives that many of
            each entry, stacked on a first axis.
        """

        def draw(generator: torch.Generator, count: int) -> RuleState:
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            host = torch.Generator().manual_seed(seed)
            draws = [self.init(task, params, host) for _ in range(count)]
            return {name: torch.stack([drawn[name] for drawn in draws]) for name in draws[0]}

        return draw

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Per state 0..L, whether the credit is the true gradient by construction.

        Args:
            depth: L.
        """
        return (False,) * (depth + 1)


class FeedbackRule(CreditRule):
    """A rule whose state is feedback with independent entries: it says only how wide each tensor is drawn."""

    @abstractmethod
    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """Which tensors the rule feeds back through, and how each is drawn.

        Args:
            task: What is trained.
            params: Parameters at initialisation.
        """

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """Drawn on the CPU and in float64, so the same on every device and in every dtype."""
        like = next(iter(params.values()))
        return {
            name: (each.standard(generator) * each.sd).to(like)
            for name, each in self.feedback_inits(task, params).items()
        }

    def redraw(self, task: Task, params: Params, state: RuleState) -> Redraw:
        """Drawn where they are used: moving as many there would cost more than the null."""
        like = next(iter(params.values()))
        inits = self.feedback_inits(task, params)

        def draw(generator: torch.Generator, count: int) -> RuleState:
            return {
                name: each.standard(generator, count, torch.float32).to(like).mul_(each.sd)
                for name, each in inits.items()
            }

        return draw


def published_index(signals: Sequence[Tensor], exact: Sequence[bool]) -> tuple[Tensor, ...]:
    """The credit that the published cosine pairs with g_l: block l's, one block off; c_L at l = L.

    A rule that is exact at every state has no feedback to be off by: it is paired with itself.

    Args:
        signals: c_0..c_L.
        exact: Which are exact by construction.
    """
    if all(exact):
        return tuple(signals)
    return (*signals[1:], signals[-1])
