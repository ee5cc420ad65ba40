"""Forward-forward: each block tells a right label in the input from a wrong one by the size of its own output."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vjp
from torch.nn import functional

from creditscope.blocks import Batch, CreditRule, Identity, Params, Pass, Proof, Reported, RuleState, Step, Task
from creditscope.errors import BadInput, did_you_mean
from creditscope.records.rule_card import Sketch

_WRONG = "wrong"
_ANSWERS = ("readout", "goodness")


@dataclass(frozen=True)
class ForwardForward(CreditRule):
    """Goodness = mean of f_l²; block l lowers softplus(∓d·(goodness − θ)), − with the right label (Hinton 2022).

    The label is written over C entries of the flattened input, amplitude at its place and 0 elsewhere, in units of the
    normalised input; the wrong one is drawn evenly from the others at each step. The embedding counts as a layer, with
    h_0 for f. Head and out_ln learn on the plain input, by their exact gradient; nothing of it enters a block.

    Args:
        theta: θ, the mean square that tells the two apart.
        amplitude: Of the label in the input.
        position: First entry that the label is written over.
        answer: By what test accuracy is counted: ``readout``, the head on the plain input, or ``goodness``, the label
            with the largest sum over blocks. A frozen twin is always judged by its readout: the goodness of untrained
            blocks says nothing, and anything would beat it.
    """

    theta: float = 1.0
    amplitude: float = 1.0
    position: int = 0
    answer: str = "readout"

    name = "ff"
    family = "objective"
    formula = "logit = d·(mean f_l² − θ); block l raises it for the right label in the input, lowers it for a wrong one"
    paper = "Hinton 2022"
    injection = (
        "the label in the input of two forward passes, a right one and a wrong one; a loss of its own at each f_l"
    )
    sketch = Sketch(text="a right and a wrong label in the input; a loss on the size of each f_l", route="direct")
    identity = Identity(
        needs=("the label in the input", "a right and a wrong example of every sample"),
        spares=(
            "the error at the output, but for the head",
            "the weights of other blocks",
            "a backward pass through more than one block",
        ),
        proofs=(
            Proof(
                "a block's update does not change when later weights do", "test_later_weights_change_no_earlier_update"
            ),
            Proof("wrong labels are never the right one, and even", "test_wrong_labels_are_even_and_never_right"),
            Proof("by goodness, the twin is judged by its readout", "test_a_frozen_twin_is_judged_by_its_readout"),
        ),
        reported=(Reported("MLP 4×2000, MNIST", "1.45 % error", "public code of Hinton 2022, loeweX/Forward-Forward"),),
        differs=(
            "loeweX/Forward-Forward divides each layer's input by its length, so that a layer cannot read the goodness "
            "of the one below; here only the model's own norms do (each branch of a ResMLP begins with one, an MLP has "
            "none)",
            "it reads the label off all layers but the first, with a neutral label in the input, passes gradients "
            "through ReLU whatever its input, and adds a peer normalisation; here the model's head reads h_L of the "
            "plain input, and activations have their own slope",
        ),
    )

    def __post_init__(self) -> None:
        if self.answer not in _ANSWERS:
            raise BadInput(f"option answer of rule ff: got {self.answer!r}; {did_you_mean(self.answer, _ANSWERS)}")
        if self.position < 0:
            raise BadInput(f"option position of rule ff: wanted 0 or more, got {self.position}")

    @property
    def answers(self) -> bool:
        """Where goodness says which label it is."""
        return self.answer == "goodness"

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """Nothing; a model that the rule makes no sense on is refused."""
        inputs = math.prod(task.input_shape)
        if task.input_dtype is not None or any(len(shape) != 1 for shape in task.shapes):
            raise BadInput(
                f"ff writes the label into the input and asks each block for one vector, got states of shape "
                f"{task.shapes[0]}; train it on resmlp or mlp"
            )
        if self.position + task.outputs > inputs:
            raise BadInput(
                f"ff writes {task.outputs} entries from position {self.position} on, and the input has {inputs}; lower "
                f"the position"
            )
        return {}

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """For the draw of a wrong label."""
        return {_WRONG: (batch, task.outputs)}

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """Three detached passes: the right label, a wrong one, and the plain input for the readout."""
        right = self.labelled(batch.x, batch.y, task.outputs)
        wrong = self.labelled(batch.x, wrong_labels(noise[_WRONG], batch.y), task.outputs)

        def run(params: dict[str, Tensor]) -> tuple[tuple[Tensor, Tensor], Mapping[str, Tensor]]:
            up, down = (self._logits(task.forward(params, x, detach=True)) for x in (right, wrong))
            # torch's softplus is a straight line from 20 on.
            objective = -(functional.logsigmoid(up) + functional.logsigmoid(-down)).mean(1).sum() / 2
            plain = task.forward(params, batch.x, detach=True)
            return (objective, plain.logits), plain.buffers

        (objective, logits), pullback, buffers = vjp(run, dict(params), has_aux=True)  # type: ignore[misc]
        error = task.error(logits, batch.y) / len(batch.x)
        return Step(task.loss(logits, batch.y), pullback((torch.ones_like(objective), error))[0], buffers=buffers)

    def answered(self, task: Task, params: Params, state: RuleState, x: Tensor) -> Tensor:
        """By goodness: for each label, the sum over blocks of its logit; the embedding's is left out."""
        labels = torch.arange(task.outputs, device=x.device)
        found = [
            self._logits(task.forward(params, self.labelled(x, label.expand(len(x)), task.outputs)))[1:].sum(0)
            for label in labels
        ]
        return torch.stack(found, 1)

    def labelled(self, x: Tensor, y: Tensor, classes: int) -> Tensor:
        """Inputs with a label written over some of their entries.

        Args:
            x: Inputs.
            y: Labels.
            classes: C.
        """
        flat = x.flatten(1)
        hot = (y.unsqueeze(1) == torch.arange(classes, device=x.device)).to(x.dtype) * self.amplitude
        parts = [flat[:, : self.position], hot, flat[:, self.position + classes :]]
        return torch.cat(parts, 1).reshape(x.shape)

    def _logits(self, seen: Pass) -> Tensor:
        """d·(goodness − θ) of the embedding and of each block, per sample: (L + 1, samples)."""
        parts = [seen.states[0], *seen.branches]
        return torch.stack([(f.square() - self.theta).sum(1) for f in parts])


def wrong_labels(drawn: Tensor, y: Tensor) -> Tensor:
    """One of the other labels, each as likely.

    Args:
        drawn: Independent normal numbers, one for each sample and label.
        y: The right labels.
    """
    right = y.unsqueeze(1) == torch.arange(drawn.shape[1], device=y.device)
    return drawn.masked_fill(right, -math.inf).argmax(1)
