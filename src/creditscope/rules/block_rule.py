"""Block rules: a signal per state, and a local vector–Jacobian product inside each block."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vjp

from creditscope.blocks import Batch, CreditRule, FeedbackRule, Params, RuleState, Step, Task
from creditscope.errors import BadInput

RMS_EPS = 1e-6


class Seen(NamedTuple):
    """What a rule sees of a forward pass.

    Args:
        batch: The batch.
        states: h_0..h_L.
        error: e per sample.
        noise: Fresh random numbers; empty where a probe asks for the credit.
        phase: Which kind of step; where a probe asks, of the step that comes next.
    """

    batch: Batch
    states: tuple[Tensor, ...]
    error: Tensor
    noise: Mapping[str, Tensor]
    phase: str = ""


class Assigned(NamedTuple):
    """What a rule makes of it.

    Args:
        signals: c_0..c_L per sample, sum-reduced; a size of 1 stands for "the same for all" along that axis.
        grads: Gradients of the trained entries of its state, the mean over the batch.
        state: New values of the entries that it updates itself.
    """

    signals: tuple[Tensor, ...]
    grads: Mapping[str, Tensor] = {}
    state: Mapping[str, Tensor] = {}


class BlockStep(CreditRule):
    """Block l minimises mean_batch ⟨f_l(stopgrad h_l), c_{l+1}⟩; head and out_ln get their exact gradient.

    A subclass says only which signal c_0..c_L each state gets.
    """

    penalty = "local"
    penalises = True

    @abstractmethod
    def assign(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Assigned:
        """The signals of one batch, and what the batch teaches the rule's own state.

        Args:
            task: What is trained.
            params: Parameters now.
            state: The rule's state now.
            seen: The forward pass.
        """

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """One detached forward pass, then one pullback of (c_0..c_L, e) through the pieces."""

        def run(params: dict[str, Tensor]) -> tuple[tuple[tuple[Tensor, ...], Tensor], Mapping[str, Tensor]]:
            seen = task.forward(params, batch.x, detach=True)
            return (seen.states, seen.logits), seen.buffers

        (states, logits), pullback, buffers = vjp(run, dict(params), has_aux=True)  # type: ignore[misc]
        error = task.error(logits, batch.y)
        assigned = self.assign(task._replace(penalty=None), params, state, Seen(batch, states, error, noise, phase))
        n = len(batch.x)
        signals = handed_out(self.name, task, assigned.signals)
        arriving = tuple((c / n).expand_as(h) for c, h in zip(signals, states, strict=True))
        grads = pullback((arriving, error / n))[0] | assigned.grads
        return Step(task.loss(logits, batch.y), grads, assigned.state, buffers)


class SignalRule(BlockStep):
    """A block rule whose signals are credit: it delivers them to whoever asks."""

    family = "signal"
    normalisable = True

    def credit(self, task: Task, params: Params, state: RuleState, seen: Seen) -> tuple[Tensor, ...]:
        """The signals alone: a rule that has something to learn from a batch leaves that out here.

        Args:
            task: What is trained.
            params: Parameters now.
            state: The rule's state now.
            seen: The forward pass.
        """
        return self.assign(task, params, state, seen).signals

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The signals, from a plain forward pass."""
        seen = task.forward(params, batch.x)
        error = task.error(seen.logits, batch.y)
        signals = self.credit(task, params, state, Seen(batch, seen.states, error, {}, task.phase))
        return at_states(self.name, task, signals, len(batch.x))


class BlockRule(SignalRule, FeedbackRule):
    """A block rule whose signals follow from h_L, e and its feedback alone: a subclass says how."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "deliver" in vars(cls) and "deliver_observed" not in vars(cls):
            # One that delivers in a way of its own is asked for just that.
            cls.deliver_observed = FeedbackRule.deliver_observed  # type: ignore[method-assign]

    @abstractmethod
    def signals(
        self, task: Task, params: Params, state: RuleState, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """The credit c_0..c_L per sample, sum-reduced; a size of 1 stands for "the same for all" along that axis.

        Args:
            task: What is trained.
            params: Parameters now.
            state: The rule's state now.
            error: e per sample.
            top: h_L.
            batch: The batch.
        """

    def assign(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Assigned:
        """The signals alone."""
        return Assigned(self.signals(task, params, state, seen.error, seen.states[-1], seen.batch))

    def deliver_observed(
        self, task: Task, params: Params, state: RuleState, batch: Batch, top: Tensor, error: Tensor
    ) -> tuple[Tensor, ...]:
        """The signals, without a forward pass."""
        return at_states(self.name, task, self.signals(task, params, state, error, top, batch), len(batch.x))


def at_states(name: str, task: Task, signals: tuple[Tensor, ...], samples: int) -> tuple[Tensor, ...]:
    """Signals as they are handed out, in full size.

    Args:
        name: The rule's.
        task: What is trained.
        signals: c_0..c_L.
        samples: How many.
    """
    handed = handed_out(name, task, signals)
    return tuple(c.expand(samples, *shape) for c, shape in zip(handed, task.shapes, strict=True))


def handed_out(name: str, task: Task, signals: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Signals of the states' shapes, divided by their RMS where the task says so.

    Args:
        name: The rule's.
        task: What is trained.
        signals: c_0..c_L.
    """
    shapes = [tuple(c.shape[1:]) for c in signals]
    if len(shapes) != len(task.shapes) or not all(map(_fits, shapes, task.shapes)):
        raise BadInput(f"rule {name}: its signals have shapes {shapes}, wanted one for each of {task.shapes}")
    return normalised(signals) if task.normalise else signals


def _fits(signal: tuple[int, ...], state: tuple[int, ...]) -> bool:
    return len(signal) == len(state) and all(a in (1, b) for a, b in zip(signal, state, strict=True))


def normalised(signals: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Each sample's signal over its root mean square: those of one shape together, one that serves two states once.

    Args:
        signals: Per state, first axis samples.
    """
    each = {id(c): c for c in signals}
    scaled: dict[int, Tensor] = {}
    for shape in {c.shape: None for c in each.values()}:
        keys = [key for key, c in each.items() if c.shape == shape]
        stacked = torch.stack([each[key] for key in keys])
        rms = stacked.square().mean(tuple(range(2, stacked.ndim)), keepdim=True).sqrt()
        scaled |= dict(zip(keys, (stacked / (rms + RMS_EPS)).unbind(), strict=True))
    return tuple(scaled[id(c)] for c in signals)
