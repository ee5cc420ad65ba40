"""Kolen–Pollack: the backward weight learns by the gradient of the weight, and both forget their start."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import Batch, Params, RuleState, Step, Task
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
