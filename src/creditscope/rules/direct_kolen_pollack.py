"""Direct Kolen–Pollack: direct feedback whose matrices learn from the error and the state that they serve."""

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, Identity, Params, Proof, Reported, RuleState, Task
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import Assigned, Seen
from creditscope.rules.direct_rule import EMBEDDING, DirectRule


@dataclass(frozen=True)
class DirectKolenPollack(DirectRule):
    """dfa with B_l trained: its gradient is the batch mean of eᵀ·h_{l+1}, as a readout of that state would have.

    B has the optimiser and the decoupled decay of the weights. Where one error serves a sequence of tokens, h is their
    mean.
    """

    name = "dkp"
    formula = "c_{l+1} = e·B_l, c_0 = e·B_0; B_l gets the gradient eᵀ·h_{l+1}"
    paper = "Webster, Choi & Ahn 2021"
    injection = "e·B_l at the output of block l, e·B_0 at the embedding, B learned; one for all tokens, or one each"
    identity = Identity(
        needs=("the error at the output", "a learned matrix per block"),
        spares=("the weights on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof(
                "from B = 0 the first signal is zero, the second is not",
                "test_feedback_that_starts_at_zero_sends_nothing_once",
            ),
            Proof(
                "without out_ln, W_head − B of the last block shrinks by 1 − ηλ a step",
                "test_without_a_norm_before_the_head_its_weight_and_the_last_matrix_approach_each_other",
            ),
            Proof(
                "with its gradient turned round the loss rises", "test_with_its_gradient_turned_round_the_loss_rises"
            ),
            Proof("@fixed-feedback is dfa", "test_held_at_its_start_it_is_direct_feedback_alignment"),
        ),
        reported=(Reported("2 convolutions + 2 linear maps, CIFAR-10", "67.5 %", "Webster et al. 2021"),),
        differs=(
            "webstah/dkp-gist draws B by Kaiming's uniform rule and sums e·h over the mean-reduced error that autograd "
            "hands it: the same gradient; a second term, e times the output, is commented out there",
        ),
    )
    learns = True
    sketch = Sketch(text="error times a learned matrix, straight to each block", route="direct")

    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """e."""
        return error

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """Every matrix."""
        return frozenset(state)

    def assign(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Assigned:
        """dfa's signals, and the batch mean of eᵀ·h for each matrix."""
        served = {f"B.{level}": h for level, h in enumerate(seen.states[1:])} | {EMBEDDING: seen.states[0]}
        n = len(seen.batch.x)
        grads = {name: _outer(seen.error, served[name]).reshape(b.shape) / n for name, b in state.items()}
        return super().assign(task, params, state, seen)._replace(grads=grads)


def _outer(error: Tensor, h: Tensor) -> Tensor:
    """Σ eᵀ·h over samples, and over tokens where each has an error of its own."""
    if error.ndim == 3:
        return error.flatten(0, 1).T @ h.flatten(0, 1)
    return error.T @ (h.mean(1) if h.ndim == 3 else h.flatten(1))
