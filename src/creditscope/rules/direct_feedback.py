"""Direct feedback alignment: the output error reaches every block through its own fixed random matrix."""

from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, Identity, Proof, Reported
from creditscope.rules.direct_rule import DirectRule


@dataclass(frozen=True)
class DirectFeedback(DirectRule):
    """c_{l+1} = e·B_l and c_0 = e·B_0, B_l ~ N(0, 1/C) fixed (Nøkland 2016)."""

    name = "dfa"
    formula = "c_{l+1} = e·B_l, c_0 = e·B_0 with fixed random B_l"
    paper = "Nøkland 2016"
    injection = "e·B_l at the output of block l; e·B_0 at the embedding; every token alike"
    identity = Identity(
        needs=("the error at the output", "a fixed random matrix per block"),
        spares=("the weights on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof("the embedding's credit is that of block 0", "test_the_embedding_gets_the_credit_of_block_0"),
            Proof("every token gets one credit", "test_every_token_receives_the_same_credit"),
        ),
        reported=(
            Reported("LeNet, Fashion-MNIST", "12.81 % error", "BioTorch"),
            Reported("ResNet-20, CIFAR-10, 250 epochs, Adam, one run", "32.16 % error", "BioTorch"),
            Reported("2 convolutions + 2 linear maps, CIFAR-10", "61.0 %", "Webster et al. 2021"),
        ),
    )

    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """e."""
        return error
