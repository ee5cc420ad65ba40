"""Backprop, the reference."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.func import vjp

from creditscope.blocks import Batch, CreditRule, Params, RuleState, Step, Task, observe
from creditscope.records.rule_card import Sketch


@dataclass(frozen=True)
class Backprop(CreditRule):
    """c_l = g_l, the true gradient (Rumelhart, Hinton & Williams 1986). A penalty joins the global loss."""

    name = "bp"
    family = "signal"
    formula = "c_l = g_l: the true gradient, carried back exactly"
    paper = "Rumelhart, Hinton & Williams 1986"
    injection = "exact gradient at the logits, carried back through every block"
    sketch = Sketch(text="exact gradient, block to block", route="chain")
    penalty = "global"

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The gradient of the mean loss; a penalty of the task adds its own on the way back."""

        def run(params: dict[str, Tensor]) -> tuple[Tensor, Mapping[str, Tensor]]:
            seen = task.forward(params, batch.x)
            return seen.logits, seen.buffers

        logits, pullback, buffers = vjp(run, dict(params), has_aux=True)  # type: ignore[misc]
        grads = pullback(task.error(logits, batch.y) / len(batch.x))[0]
        return Step(task.loss(logits, batch.y), grads, buffers=buffers)

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The true gradient at every state."""
        return observe(task, params, None, {}, batch).references

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact everywhere."""
        return (True,) * (depth + 1)
