"""Block rules: a signal per state, and a local vector–Jacobian product inside each block."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp

from creditscope.blocks import Batch, FeedbackRule, Params, RuleState, Step, Task
from creditscope.errors import BadInput

RMS_EPS = 1e-6


class BlockRule(FeedbackRule):
    """Block l minimises mean_batch ⟨f_l(stopgrad h_l), c_{l+1}⟩; head and out_ln get their exact gradient.

    A subclass says only which signal c_0..c_L it delivers, and from which feedback.
    """

    family = "signal"
    penalty = "local"
    penalises = True
    normalisable = True

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

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """One detached forward pass, then one pullback of (c_0..c_L, e) through the pieces."""

        def run(params: dict[str, Tensor]) -> tuple[tuple[tuple[Tensor, ...], Tensor], Mapping[str, Tensor]]:
            seen = task.forward(params, batch.x, detach=True)
            return (seen.states, seen.logits), seen.buffers

        (states, logits), pullback, buffers = vjp(run, dict(params), has_aux=True)  # type: ignore[misc]
        error = task.error(logits, batch.y)
        signals = self._handed_out(task, params, state, error, states[-1], batch)
        n = len(batch.x)
        arriving = tuple((c / n).expand_as(h) for c, h in zip(signals, states, strict=True))
        grads = pullback((arriving, error / n))[0] | self.state_gradients(state, error, states)
        return Step(task.loss(logits, batch.y), grads, buffers=buffers)

    def state_gradients(self, state: RuleState, error: Tensor, states: Sequence[Tensor]) -> dict[str, Tensor]:
        """Gradients of the trained entries of the state, the mean over the batch; here, none trains.

        Args:
            state: The rule's state now.
            error: e per sample.
            states: h_0..h_L.
        """
        return {}

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The signals, from a plain forward pass."""
        seen = task.forward(params, batch.x)
        error = task.error(seen.logits, batch.y)
        return self._at_states(task, params, state, error, seen.states[-1], batch)

    def deliver_observed(
        self, task: Task, params: Params, state: RuleState, batch: Batch, top: Tensor, error: Tensor
    ) -> tuple[Tensor, ...]:
        """The signals alone."""
        return self._at_states(task, params, state, error, top, batch)

    def _at_states(
        self, task: Task, params: Params, state: RuleState, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        signals = self._handed_out(task, params, state, error, top, batch)
        return tuple(c.expand(len(batch.x), *shape) for c, shape in zip(signals, task.shapes, strict=True))

    def _handed_out(
        self, task: Task, params: Params, state: RuleState, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        signals = self.signals(task, params, state, error, top, batch)
        shapes = [tuple(c.shape[1:]) for c in signals]
        if len(shapes) != len(task.shapes) or not all(map(_fits, shapes, task.shapes)):
            raise BadInput(f"rule {self.name}: its signals have shapes {shapes}, wanted one for each of {task.shapes}")
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
