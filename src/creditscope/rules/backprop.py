"""Backprop, the reference."""

from dataclasses import dataclass

from torch import Tensor
from torch.func import vjp

from creditscope.blocks import Batch, Credit, CreditRule, Feedback, Params, Spread, Task, observe
from creditscope.records import FeedbackSpec
from creditscope.rules.block_rule import penalty_signal


@dataclass(frozen=True)
class Backprop(CreditRule):
    """c_l = g_l, the true gradient (Rumelhart, Hinton & Williams 1986). A penalty joins the global loss."""

    @property
    def injection(self) -> str:
        """Where the credit enters."""
        return "exact gradient at the logits, carried back through every block"

    @property
    def feedback_spec(self) -> FeedbackSpec:
        """No feedback."""
        return FeedbackSpec()

    def spreads(self, task: Task, params: Params) -> dict[str, Spread]:
        """No feedback to draw."""
        return {}

    def assign(self, task: Task, params: Params, feedback: Feedback, batch: Batch, penalty: Tensor | None) -> Credit:
        """The gradient of mean loss (+ λ·Σ_l mean ‖f_l‖²)."""

        def run(params: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
            seen = task.blocks.forward({**task.buffers, **params}, batch.x)
            return seen.logits, seen.branches if penalty is not None else ()

        (logits, branches), pullback = vjp(run, dict(params))  # type: ignore[misc]
        n = len(batch.x)
        contain = tuple(penalty_signal(f, penalty) / n for f in branches) if penalty is not None else ()
        grads = pullback((task.error(logits, batch.y) / n, contain))[0]
        return Credit(task.loss(logits, batch.y), grads)

    def deliver(self, task: Task, params: Params, feedback: Feedback, batch: Batch) -> tuple[Tensor, ...]:
        """The true gradient at every state."""
        return observe(task, params, None, {}, batch).references

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact everywhere."""
        return (True,) * (depth + 1)
