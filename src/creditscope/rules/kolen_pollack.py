"""Kolen–Pollack: the backward weight learns by the gradient of the weight, and both forget their start."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import Batch, Identity, Params, Proof, Reported, RuleState, Step, Task
from creditscope.rules.transport import LearnedFeedback, weight_of


@dataclass(frozen=True)
class KolenPollack(LearnedFeedback):
    """B gets W's own gradient and W's own optimiser: W − B shrinks by the decay alone (Kolen & Pollack 1994).

    Args:
        decay: Decoupled decay of W and of B on top of the run's own, in the same unit: at each step both are
            multiplied by 1 − learning rate·decay.
    """

    decay: float = 0.0

    name = "kp"
    formula = "the backward pass of BP with W replaced by B; B gets W's gradient, optimiser and decay"
    paper = "Kolen & Pollack 1994; Akrout et al. 2019"
    identity = Identity(
        needs=("the error at the output", "a learned matrix per linear map", "a backward pass through every block"),
        spares=("the weights on the way back: B only moves as W does",),
        proofs=(
            Proof(
                "W − B shrinks by exactly 1 − ηλ a step under AdamW",
                "test_the_difference_shrinks_by_one_minus_the_rate_times_the_decay",
            ),
            Proof("and under SGD", "test_under_plain_sgd_with_decoupled_decay_it_shrinks_likewise"),
            Proof("started at W it is bp for ever", "test_started_at_the_weights_it_is_backprop_for_ever"),
            Proof("@fixed-feedback is fa", "test_held_at_its_start_it_is_feedback_alignment"),
        ),
        reported=(Reported("MLP 784-500-10, MNIST", "98.45 %, angle of δ 3.1°", "logs of Akrout et al. 2019"),),
        differs=(
            "makrout/Deep-Learning-without-Weight-Transport never passes its decay factor, which stays 1: W − B keeps "
            "its start for ever. Here the run's own weight decay acts on both; option decay adds to it",
        ),
    )

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """The matrices of the weights that train."""
        return frozenset(entry for entry in state if weight_of(entry) in params)

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The transport step; each B gets the gradient of its W, a penalty's share included."""
        step = super().step(task, params, state, batch, noise, phase)
        learning = self.trained(state, params)
        grads = step.grads | {entry: step.grads[weight_of(entry)] for entry in learning}
        decay = torch.as_tensor(self.decay, dtype=step.loss.dtype, device=step.loss.device)
        shrinking = sorted(learning | {weight_of(entry) for entry in learning})
        return step._replace(grads=grads, decay=dict.fromkeys(shrinking, decay))
