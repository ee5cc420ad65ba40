"""Predictive coding: the states relax on an energy, and credit is what each state and its prediction differ by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from creditscope.blocks import Identity, Params, Proof, RuleState, Task
from creditscope.errors import BadInput
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import Assigned, Seen, SignalRule
from creditscope.rules.chain import require_chain

States = Sequence[Tensor]


@dataclass(frozen=True)
class PredictiveCoding(SignalRule):
    """c_l = F_{l−1}(x_{l−1}) − x_l after T steps of size γ on ½‖x_0 − h_0‖² + Σ ½‖x_{l+1} − F_l(x_l)‖² + loss.

    The states start at the forward pass and all move at once, the input fixed (Whittington & Bogacz 2017). Each block
    learns at its state of the forward pass.

    Args:
        steps: T.
        rate: γ. With blocks near the identity it must stay below .54.
        zil: Whether γ = 1, T = L + 1 and c_l is read after L − l + 1 steps: then it is backprop.
    """

    steps: int = 20
    rate: float = 0.1
    zil: bool = False

    name = "pc"
    formula = "c_l = F_{l−1}(x_{l−1}) − x_l after T steps of size γ down Σ ½‖x_{l+1} − F_l(x_l)‖² + loss"
    paper = "Whittington & Bogacz 2017"
    injection = "what each state and its prediction differ by, after the states relaxed together"
    sketch = Sketch(text="prediction less state, after the states relaxed", route="chain")
    null_kind = "rotated credit"
    identity = Identity(
        needs=(
            "the error at the output, which acts on the states while they relax",
            "the transposed Jacobian of each block, at its relaxing state",
            "T passes forth and back through every block",
        ),
        spares=("a signal that passes more than one block in a step",),
        proofs=(
            Proof("zil is bp to 1e-15", "test_read_wave_by_wave_it_is_backprop"),
            Proof(
                "converged, with a tiny error, its cosine with bp tends to 1",
                "test_converged_with_a_tiny_error_it_tends_to_backprop",
            ),
        ),
        differs=(
            "bjornvz/PRECO fixes the output at the one-hot label, under a squared loss, has no free x_0, and learns at "
            "the relaxed states; here the output is free under the task's own loss, and blocks learn at h",
        ),
    )

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BadInput(f"option steps of rule pc: wanted at least 1, got {self.steps}")
        if not self.rate > 0:
            raise BadInput(f"option rate of rule pc: wanted a number above 0, got {self.rate:g}")
        if self.zil and (self.steps, self.rate) != (type(self).steps, type(self).rate):
            raise BadInput("option zil of rule pc fixes steps and rate; drop those two")

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """Nothing is kept; refused for a model that is no chain."""
        require_chain(self.name, task, params)
        return {}

    def assign(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Assigned:
        """Relax, and read."""

        def errors(x: States) -> tuple[list[Tensor], Tensor]:
            made = task.apart(params, dict(enumerate(x)), seen.batch.x[:1])
            predicted = [seen.states[0], *made.states[1:]]
            return [h - p for h, p in zip(x, predicted, strict=True)], task.loss(made.logits, seen.batch.y)

        def energy(x: States) -> tuple[Tensor, Any]:
            apart, loss = errors(x)
            return sum((e.square().sum() / 2 for e in apart), loss.sum()), apart

        depth = task.blocks.depth
        count, rate = (depth + 1, 1.0) if self.zil else (self.steps, self.rate)
        x, found = list(seen.states), []
        for _ in range(count):
            slopes, apart = grad(energy, has_aux=True)(x)
            found.append(apart)
            x = [h - rate * slope for h, slope in zip(x, slopes, strict=True)]
        found.append(errors(x)[0])
        read = [depth - level + 1 if self.zil else count for level in range(depth + 1)]
        return Assigned(tuple(-found[at][level] for level, at in enumerate(read)))

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Everywhere with zil."""
        return (self.zil,) * (depth + 1)
