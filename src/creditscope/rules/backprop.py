"""Backprop, the reference."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.func import vjp

from creditscope.blocks import Batch, CreditRule, Identity, Params, Proof, Reported, RuleState, Step, Task, observe
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
    identity = Identity(
        needs=(
            "the error at the output",
            "the weights themselves on the way back",
            "a backward pass through every block",
        ),
        proofs=(Proof("its credit is the reference at every state", "test_backprops_credit_is_the_reference"),),
        reported=(
            Reported("LeNet, Fashion-MNIST", "9.2 % error", "BioTorch"),
            Reported("ResNet-20, CIFAR-10, 250 epochs, Adam, one run", "10.01 % error", "BioTorch"),
            Reported("MLP 784-500-10, MNIST", "98.50 %", "logs of Akrout et al. 2019"),
            Reported("MLP, CIFAR-10 and Fashion-MNIST", "33.6 and 8.37 % error", "Nøkland & Eidnes 2019"),
        ),
    )

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
