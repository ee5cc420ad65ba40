"""Block rules: a signal per state, and a local vector–Jacobian product inside each block."""

from abc import abstractmethod

from torch import Tensor
from torch.func import vjp

from creditscope.blocks import Batch, Credit, CreditRule, Feedback, Params, Task
from creditscope.blocks.rule import input_gradient


class BlockRule(CreditRule):
    """Block l minimises mean_batch ⟨f_l(stopgrad h_l), c_{l+1}⟩; head and out_ln get their exact gradient.

    A subclass says only which signal c_0..c_L it delivers.
    """

    @abstractmethod
    def signals(
        self, task: Task, params: Params, feedback: Feedback, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """The credit c_0..c_L per sample, sum-reduced.

        Args:
            task: What is trained.
            params: Parameters now.
            feedback: As ``init`` drew it.
            error: e per sample.
            top: h_L.
            batch: The batch.
        """

    def assign(self, task: Task, params: Params, feedback: Feedback, batch: Batch, penalty: Tensor | None) -> Credit:
        """One cut forward pass, then one pullback of (c_0..c_L, e) through the pieces."""

        def run(params: dict[str, Tensor]) -> tuple[tuple[tuple[Tensor, ...], Tensor], tuple[Tensor, ...]]:
            seen = task.blocks.forward({**task.buffers, **params}, batch.x, detach=True)
            return (seen.states, seen.logits), seen.branches

        (states, logits), pullback, branches = vjp(run, dict(params), has_aux=True)  # type: ignore[misc]
        error = task.error(logits, batch.y)
        signals = list(self.signals(task, params, feedback, error, states[-1], batch))
        if penalty is not None:
            # The local gradient of λ·‖f_l‖² reaches block l where its credit does: at its output.
            for level, f in enumerate(branches):
                signals[level + 1] = signals[level + 1] + penalty_signal(f, penalty)
        n = len(batch.x)
        grads = pullback((tuple(c / n for c in signals), error / n))[0]
        return Credit(task.loss(logits, batch.y), grads)

    def deliver(self, task: Task, params: Params, feedback: Feedback, batch: Batch) -> tuple[Tensor, ...]:
        """The signals, from a plain forward pass."""
        seen = task.blocks.forward({**task.buffers, **params}, batch.x)
        return self.signals(task, params, feedback, task.error(seen.logits, batch.y), seen.states[-1], batch)

    def deliver_observed(
        self, task: Task, params: Params, feedback: Feedback, batch: Batch, top: Tensor, error: Tensor
    ) -> tuple[Tensor, ...]:
        """The signals alone, but for a rule that delivers in a way of its own."""
        if type(self).deliver is not BlockRule.deliver:
            return self.deliver(task, params, feedback, batch)
        return self.signals(task, params, feedback, error, top, batch)


def top_gradient(task: Task, params: Params, top: Tensor, batch: Batch) -> Tensor:
    """g_L per sample: the exact gradient at the last state, through out_ln and head alone."""
    full = {**task.buffers, **params}
    depth = task.blocks.depth
    return input_gradient(lambda h: task.loss(task.blocks.tail(full, depth, h, batch.x), batch.y), top.detach())


def penalty_signal(branch: Tensor, penalty: Tensor) -> Tensor:
    """∂/∂f of λ·‖f‖² per sample, summed over features and averaged over tokens where there are any."""
    tokens = branch.shape[1] if branch.ndim == 3 else 1
    return branch.detach() * (2 * penalty / tokens)
