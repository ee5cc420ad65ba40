"""Sign-of-error direct feedback: which outputs were too high and too low reaches every block, not by how much."""

from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, Identity, Proof
from creditscope.records.rule_card import Sketch
from creditscope.rules.direct_rule import DirectRule


@dataclass(frozen=True)
class DirectSign(DirectRule):
    """c_{l+1} = sign(e)·B_l and c_0 = sign(e)·B_0, B_l ~ N(0, 1/C) fixed (Frenkel et al. 2021).

    With softmax and one-hot labels sign(e) is 1 − 2t whatever the logits: drtp twice, and a constant.
    """

    name = "sdfa"
    formula = "c_{l+1} = sign(e)·B_l, c_0 = sign(e)·B_0 with fixed random B_l"
    paper = "Frenkel, Lefebvre & Bol 2021"
    injection = "sign(e)·B_l at the output of block l; sign(e)·B_0 at the embedding; one for all tokens, or one each"
    identity = Identity(
        needs=("the sign of the error at the output", "a fixed random matrix per block"),
        spares=("the size of the error", "the weights on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof(
                "with softmax it is 2·drtp and a constant",
                "test_the_sign_of_the_error_is_the_target_twice_and_a_constant",
            ),
        ),
    )
    sketch = Sketch(text="sign of the error times a random matrix, straight to each block", route="direct")

    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """sign(e)."""
        return error.sign()
