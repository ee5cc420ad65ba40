"""Backprop with deep supervision: the control of rules that have a loss in each block."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vjp

from creditscope.blocks import Batch, FeedbackInit, FeedbackRule, Identity, Params, Proof, RuleState, Step, Task
from creditscope.blocks.observe import zero_taps
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.decoders import decoded, decoder_inits, decoder_of


@dataclass(frozen=True)
class DeepSupervision(FeedbackRule):
    """Backprop of the task loss plus the loss of a linear decoder on each of h_0..h_{L−1} (after Lee et al. 2015).

    The decoders are those of ``local``; but here every loss reaches every block below it.

    Args:
        weight: What each decoder's loss counts.
    """

    weight: float = 1.0

    name = "bp-deep"
    family = "signal"
    formula = "c_l = ∂(loss + weight·Σ losses of linear decoders on h_0..h_{L−1})/∂h_l, carried back exactly"
    paper = "after Lee et al. 2015"
    injection = "exact gradient of the loss at the logits and of a decoder's loss at every state"
    sketch = Sketch(text="backprop, with a decoder's loss at every state", route="chain")
    penalty = "global"
    learns = True
    feedback_spec = FeedbackSpec(dist="uniform", scale="1/sqrt(3·width)")
    identity = Identity(
        needs=(
            "the error at the output",
            "the label and a learned linear decoder at every state",
            "the weights themselves on the way back",
            "a backward pass through every block",
        ),
        proofs=(
            Proof("with weight 0 it is bp", "test_without_its_weight_deep_supervision_is_backprop"),
            Proof("it is autograd's gradient of the sum of all losses", "test_deep_supervision_against_autograd"),
        ),
    )

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """The decoders as they start."""
        return decoder_inits(task, params)

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """Every decoder."""
        return frozenset(state)

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The gradient of the mean of all losses; a penalty of the task adds its own on the way back."""

        def run(params: dict[str, Tensor], state: RuleState) -> tuple[Tensor, tuple[Tensor, Mapping[str, Tensor]]]:
            seen = task.forward(params, batch.x)
            loss = task.loss(seen.logits, batch.y)
            return self._total(task, seen.states, state, loss, batch, seen.logits.ndim).mean(), (loss, seen.buffers)

        total, pullback, (loss, buffers) = vjp(run, dict(params), dict(state), has_aux=True)  # type: ignore[misc]
        of_params, of_state = pullback(torch.ones_like(total))
        return Step(loss, of_params | of_state, buffers=buffers)

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The gradient of all losses at every state, per sample."""

        def run(taps: dict[int, Tensor]) -> Tensor:
            seen = task.forward(params, batch.x, taps=taps)
            tapped = [h + taps[level] for level, h in enumerate(seen.states)]
            loss = task.loss(seen.logits, batch.y)
            return self._total(task, tapped, state, loss, batch, seen.logits.ndim)

        total, pullback = vjp(run, zero_taps(task, batch.x, params))  # type: ignore[misc]
        gradients = pullback(torch.ones_like(total))[0]
        return tuple(gradients[level] for level in range(task.blocks.depth + 1))

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact at h_L, which no decoder reads."""
        return (*(False,) * depth, True)

    def _total(
        self,
        task: Task,
        states: Collection[Tensor],
        state: RuleState,
        loss: Tensor,
        batch: Batch,
        axes: int,
    ) -> Tensor:
        for level, h in enumerate(list(states)[:-1]):
            loss = loss + self.weight * task.loss(decoded(h, decoder_of(state, level), axes), batch.y)
        return loss
