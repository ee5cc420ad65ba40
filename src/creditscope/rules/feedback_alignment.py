"""Feedback alignment: every linear map sends its error back through a fixed random matrix instead of its weight."""

from dataclasses import dataclass

from creditscope.blocks import FeedbackInit, Identity, Params, Proof, Reported, Task
from creditscope.records.rule_card import Sketch
from creditscope.rules.transport import TransportFeedback, drawn_like_weights


@dataclass(frozen=True)
class FeedbackAlignment(TransportFeedback):
    """δ_in = δ_out·B in place of δ_out·W, B fixed, of W's initial standard deviation (Lillicrap et al. 2016).

    Args:
        exact_head: Whether the maps after the last block keep their true backward weight; then the skip path
            carries the true gradient everywhere, which is another rule.
    """

    exact_head: bool = False

    name = "fa"
    paper = "Lillicrap et al. 2016"
    identity = Identity(
        needs=(
            "the error at the output",
            "a fixed random matrix per linear map",
            "a backward pass through every block",
        ),
        spares=("the weights on the way back",),
        proofs=(
            Proof("with B = W it is bp", "test_feedback_alignment_with_the_weights_as_feedback_is_backprop"),
            Proof(
                "the head's own gradient is exact, out_ln's is not", "test_the_head_learns_exactly_and_out_ln_does_not"
            ),
        ),
        reported=(
            Reported("LeNet, Fashion-MNIST", "13.06 % error", "BioTorch"),
            Reported("ResNet-20, CIFAR-10, 250 epochs, Adam, one run", "29.59 % error", "BioTorch"),
            Reported("MLP 784-500-10, MNIST", "97.80 %, angle of δ 34.9°", "logs of Akrout et al. 2019"),
        ),
    )

    @property
    def formula(self) -> str:
        """The rule in one line."""
        but = " but the head's" if self.exact_head else ""
        return f"the backward pass of BP with every weight W{but} replaced by a fixed random B of its shape"

    @property
    def injection(self) -> str:
        """Where the credit enters."""
        head = "the head's true weight" if self.exact_head else "the head's random matrix"
        return f"gradient at the logits, back through {head} and a fixed random matrix per linear map"

    @property
    def sketch(self) -> Sketch:
        """Random from the head on, or below it."""
        if self.exact_head:
            text = "exact through the head, then random backward weights"
            return Sketch(text=text, route="chain", random=("block",))
        text = "random backward weight in every linear map, head included"
        return Sketch(text=text, route="chain", random=("head", "norm", "block"))

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """One matrix per linear map that has something trainable before it."""
        return drawn_like_weights(task, params, self.exact_head)

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact at h_L when the head is."""
        return (*(False,) * depth, self.exact_head)
