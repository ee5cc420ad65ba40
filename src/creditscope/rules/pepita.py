"""PEPITA: a second forward pass with the error added to the input; what it changes in each layer is the signal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.func import vjp

from creditscope.blocks import (
    Batch,
    FeedbackInit,
    FeedbackRule,
    Identity,
    Params,
    Proof,
    Reported,
    RuleState,
    Step,
    Task,
)
from creditscope.errors import BadInput
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import handed_out

_F = "F"


@dataclass(frozen=True)
class Pepita(FeedbackRule):
    """Pass 1: x → h, e. Pass 2: x′ = x ± e·F → h′. Block l gets h_{l+1} − h′_{l+1} (Dellaferrera & Kreiman 2022).

    The signal is pulled back through f_l at h′_l, inside the block; the embedding gets h_0 − h′_0 at x′. Head and
    out_ln get their exact gradient, of pass 1. Buffers are those of pass 1.

    Args:
        sign: 1 adds the error to the input, −1 takes it away: the same as 1 with −F.
        scale: F is uniform with the standard deviation scale·√(2/inputs), as published.
    """

    sign: int = 1
    scale: float = 0.05

    name = "pepita"
    family = "update"
    formula = "x′ = x ± e·F → h′; block l gets h_{l+1} − h′_{l+1}, pulled back through f_l at h′_l"
    paper = "Dellaferrera & Kreiman 2022"
    injection = "e·F at the input of a second forward pass; h − h′ at the output of each block"
    sketch = Sketch(text="error times a random matrix at the input; two forward passes compared", route="direct")
    feedback_spec = FeedbackSpec(dist="uniform", scale="scale·sqrt(2/inputs)")
    penalty = "local"
    normalisable = True
    identity = Identity(
        needs=("the error at the output", "a fixed random matrix from the output to the input", "two forward passes"),
        spares=("the weights on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof(
                "with F = 0 the blocks keep their weights but for decay", "test_without_feedback_the_blocks_only_decay"
            ),
            Proof(
                "h′ − h is to first order the tangent of e·F",
                "test_the_change_of_the_states_is_the_tangent_of_the_error",
            ),
            Proof("sign −1 with −F is sign 1 with F", "test_the_sign_and_that_of_the_matrix_cancel"),
        ),
        reported=(Reported("FC-1024, CIFAR-10", "52.6 % (drtp 45.9, bp 55.3)", "Dellaferrera & Kreiman 2022"),),
        differs=(
            "the published update multiplies h − h′ by the layer's input and leaves out the slope of the activation; "
            "here the block is differentiated, slope and norms included",
            "GiorgiaD/PEPITA takes x + F·e and the head's error from the second pass; here the head learns by the "
            "gradient of the first, so that it is the same under every rule",
            "ravifrancesco/PEPITA takes x − F·e and the head's error from the first pass, with the second pass's "
            "activity beside it",
            "code that differentiates a loss of the second pass and calls that PEPITA is backprop at another input",
        ),
    )

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise BadInput(f"option sign of rule pepita: wanted 1 or -1, got {self.sign}")

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """F, from the output to the input."""
        if task.input_dtype is not None:
            raise BadInput(
                "pepita adds the error to the input, and this model reads indices; use it on images or vectors"
            )
        inputs = math.prod(task.input_shape)
        return {_F: FeedbackInit((task.outputs, inputs), self.scale * math.sqrt(2 / inputs), "uniform")}

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """Two detached passes; one pullback of the differences through the second, of e through the first's readout."""
        plain = task.forward(params, batch.x)
        error = task.error(plain.logits, batch.y)
        if error.ndim != 2:
            raise BadInput("pepita sends one error a sample to the input, and this model has one for every token")
        modulated = batch.x + self.sign * (error @ state[_F]).reshape(batch.x.shape)

        def run(params: dict[str, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
            return task.forward(params, modulated, detach=True).states, task.forward(
                params, batch.x, detach=True
            ).logits

        (after, logits), pullback = vjp(run, dict(params))  # type: ignore[misc]
        n = len(batch.x)
        signals = tuple(h - other for h, other in zip(plain.states, after, strict=True))
        arriving = tuple(c / n for c in handed_out(self.name, task, signals))
        grads = pullback((arriving, error / n))[0]
        return Step(task.loss(logits, batch.y), grads, buffers=plain.buffers)
