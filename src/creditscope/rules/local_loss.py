"""Local losses: each block predicts the label from its own output, and no gradient passes between blocks."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vjp
from torch.nn import functional

from creditscope.blocks import Batch, FeedbackInit, FeedbackRule, Identity, Params, Proof, Reported, RuleState, Task
from creditscope.blocks.task import input_gradient
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import Assigned, BlockStep, Seen
from creditscope.rules.decoders import decoded, decoder_inits, decoder_of


@dataclass(frozen=True)
class LocalLoss(BlockStep, FeedbackRule):
    """Block l lowers the loss of a linear decoder on its own output; the last block that of head ∘ out_ln.

    States h_0..h_{L−1} have a decoder each, the embedding's among them, trained by the run's optimiser. Where every
    token has its own label the decoder reads tokens, else the whole state. Head and out_ln get their exact gradient.

    Args:
        sim: Whether each loss is (1 − β)·loss + β·the mean square of S(h) − S(t), S the cosines between the centred
            samples of the batch, t one-hot labels.
        beta: β.
    """

    sim: bool = False
    beta: float = 0.99

    name = "local"
    family = "objective"
    formula = "block l minimises the loss of a linear decoder on h_{l+1}; the last block that of head ∘ out_ln"
    paper = "Nøkland & Eidnes 2019; Gong et al. 2025"
    injection = "a loss of its own at every state, through a linear decoder; the true loss at h_L"
    sketch = Sketch(text="a linear decoder and a loss of its own in each block", route="direct")
    feedback_spec = FeedbackSpec(dist="uniform", scale="1/sqrt(3·width)")
    learns = True
    identity = Identity(
        needs=("the label in every block", "a learned linear decoder per block"),
        spares=(
            "the error at the output",
            "the weights of other blocks",
            "a backward pass through more than one block",
        ),
        proofs=(
            Proof(
                "a block's update does not change when later weights do", "test_later_weights_change_no_earlier_update"
            ),
            Proof(
                "the last block is trained through head ∘ out_ln, as in Mono-Forward",
                "test_the_last_block_learns_by_the_true_gradient",
            ),
            Proof("sim with β = 0 is the plain loss", "test_without_its_share_similarity_says_nothing"),
        ),
        reported=(
            Reported("MLP, CIFAR-10, pred / predsim / backprop", "32.3 / 30.9 / 33.6 % error", "Nøkland & Eidnes 2019"),
            Reported("MLP, Fashion-MNIST, the same", "8.60 / 8.54 / 8.37 % error", "Nøkland & Eidnes 2019"),
        ),
        differs=(
            "anokland/local-loss starts its decoders at zero and compares similarities of a further learned linear map "
            "of h, of feature maps by their standard deviation over positions; here decoders start as linear layers do "
            "and h is compared as it is",
        ),
    )

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """The decoders as they start."""
        return decoder_inits(task, params)

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """Every decoder."""
        return frozenset(state)

    def assign(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Assigned:
        """The gradient of each loss at its state, and at its decoder."""
        n, axes = len(seen.batch.x), seen.error.ndim
        signals: list[Tensor] = []
        grads: dict[str, Tensor] = {}
        for level, h in enumerate(seen.states[:-1]):

            def loss(h: Tensor, decoder: Mapping[str, Tensor]) -> Tensor:
                return self._mixed(task.loss(decoded(h, decoder, axes), seen.batch.y).mean(), h, task, seen.batch)

            value, pullback = vjp(loss, h, decoder_of(state, level))  # type: ignore[misc]
            at_state, at_decoder = pullback(torch.ones_like(value))
            signals.append(at_state * n)
            grads |= at_decoder

        def top_loss(h: Tensor) -> Tensor:
            logits = task.tail(params, task.blocks.depth, h, seen.batch.x)
            return self._mixed(task.loss(logits, seen.batch.y).mean(), h, task, seen.batch)

        return Assigned((*signals, input_gradient(top_loss, seen.states[-1], task.blocks) * n), grads)

    def _mixed(self, loss: Tensor, h: Tensor, task: Task, batch: Batch) -> Tensor:
        """The loss of a block, with the similarity's share where it has one."""
        if not self.sim:
            return loss
        labels = batch.y.unsqueeze(-1) == torch.arange(task.outputs, device=batch.y.device)
        gap = similarity(h.flatten(1)) - similarity(labels.to(h.dtype).flatten(1))
        return (1 - self.beta) * loss + self.beta * gap.square().mean()


def similarity(rows: Tensor) -> Tensor:
    """Cosine between every two samples, each less its own mean; 0 where one of them is constant.

    Args:
        rows: One sample a row.
    """
    unit = functional.normalize(rows - rows.mean(1, keepdim=True), dim=1)
    return unit @ unit.T
