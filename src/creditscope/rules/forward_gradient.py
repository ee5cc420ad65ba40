"""Forward gradient: the slope along one random direction of all weights, by forward-mode differentiation."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp

from creditscope.blocks import Batch, CreditRule, Identity, Params, Pass, Proof, RuleState, Step, Task
from creditscope.records.rule_card import Sketch


@dataclass(frozen=True)
class ForwardGradient(CreditRule):
    """The gradient of every weight is (∇L·v)·v, v standard normal and fresh at each step (Baydin et al. 2022).

    Its mean is the true gradient; one draw over n weights has a cosine of about √(2/(π·n)) with it, in size 1/√n.
    """

    name = "fg"
    family = "update"
    formula = "(∇L·v)·v over all weights, v ~ N(0, I) drawn again at each step"
    paper = "Baydin et al. 2022"
    injection = "the slope of the loss along one random direction, told to every weight"
    sketch = Sketch(text="one number for all weights: the slope along a random direction")
    penalty = "global"
    identity = Identity(
        needs=("a random direction in all weights", "the slope of the loss along it, as one number"),
        spares=("a backward pass", "the weights on the way back", "any signal of a block's own"),
        proofs=(
            Proof(
                "‖mean of K draws − g‖/‖g‖ is √((n + 1)/K) in the root mean square",
                "test_the_mean_of_many_draws_is_the_gradient",
            ),
            Proof("the expected size of one draw's cosine is Γ(n/2)/(√π·Γ((n + 1)/2))", "test_the_cosine_of_one_draw"),
        ),
        differs=("orobix/fwdgrad clips the norm of the gradient on demand; the estimator is the same",),
    )

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """A direction in all weights."""
        return {name: tuple(p.shape) for name, p in params.items()}

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """One forward pass with its tangent; a penalty joins the loss."""
        plain = task._replace(penalty=None)

        def objective(params: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, Mapping[str, Tensor]]]:
            seen = plain.forward(params, batch.x)
            loss = task.loss(seen.logits, batch.y)
            total = loss.mean() if task.penalty is None else loss.mean() + task.penalty * _squares(seen)
            return total, (loss, seen.buffers)

        direction = {name: noise[name] for name in params}
        _, slope, (loss, buffers) = jvp(objective, (dict(params),), (direction,), has_aux=True)  # type: ignore[misc]
        return Step(loss, {name: slope * v for name, v in direction.items()}, buffers=buffers)


def _squares(seen: Pass) -> Tensor:
    """Σ_l mean over the batch, and over tokens, of ‖f_l‖²."""
    tokens = [f.shape[1] if f.ndim == 3 else 1 for f in seen.branches]
    return torch.stack(
        [f.square().sum() / (len(f) * count) for f, count in zip(seen.branches, tokens, strict=True)]
    ).sum()
