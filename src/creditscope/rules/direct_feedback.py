"""Direct feedback alignment: the output error reaches every block through its own fixed random matrix."""

import math
from dataclasses import dataclass
from typing import cast, get_args

from torch import Tensor

from creditscope.blocks import Batch, FeedbackInit, Identity, Params, Proof, Reported, Task
from creditscope.blocks.feedback import Distribution
from creditscope.errors import BadInput, did_you_mean
from creditscope.records import FeedbackSpec
from creditscope.rules.direct_rule import EMBEDDING, DirectRule, receiving


@dataclass(frozen=True)
class DirectFeedback(DirectRule):
    """c_{l+1} = e·B_l and c_0 = e·B_0, B_l ~ N(0, 1/C) fixed (Nøkland 2016).

    Args:
        own_embedding: Whether the embedding has a matrix of its own instead of block 0's.
        scale: Factor on the standard deviation of the feedback.
        dist: ``normal`` or ``uniform`` feedback, of one standard deviation.
    """

    own_embedding: bool = False
    scale: float = 1.0
    dist: str = "normal"

    name = "dfa"
    paper = "Nøkland 2016"
    injection = "e·B_l at the output of block l; e·B_0 at the embedding; one for all tokens, or one each"
    identity = Identity(
        needs=("the error at the output", "a fixed random matrix per block"),
        spares=("the weights on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof("the embedding's credit is that of block 0", "test_the_embedding_gets_the_credit_of_block_0"),
            Proof("tokens that share one output get one credit", "test_every_token_receives_the_same_credit"),
        ),
        reported=(
            Reported("LeNet, Fashion-MNIST", "12.81 % error", "BioTorch"),
            Reported("ResNet-20, CIFAR-10, 250 epochs, Adam, one run", "32.16 % error", "BioTorch"),
            Reported("2 convolutions + 2 linear maps, CIFAR-10", "61.0 %", "Webster et al. 2021"),
        ),
    )

    def __post_init__(self) -> None:
        if self.dist not in get_args(Distribution):
            raise BadInput(f"rule dfa, option dist: {did_you_mean(self.dist, get_args(Distribution))}")

    @property
    def formula(self) -> str:
        """Which matrix serves the embedding, too."""
        return f"c_{{l+1}} = e·B_l, c_0 = e·{'B_embedding' if self.own_embedding else 'B_0'} with fixed random B_l"

    @property
    def feedback_spec(self) -> FeedbackSpec:
        """With the distribution and the scale that were chosen."""
        factor = f"{self.scale:g}"
        return FeedbackSpec(dist=self.dist, scale=f"{factor}/sqrt(classes)")

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """As for every direct rule, with the options."""
        inits = super().feedback_inits(task, params)
        if self.own_embedding:
            inits[EMBEDDING] = inits["B.0"]._replace(shape=(task.outputs, math.prod(receiving(task.shapes[0]))))
        return {
            name: each._replace(sd=self.scale * each.sd, distribution=cast(Distribution, self.dist))
            for name, each in inits.items()
        }

    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """e."""
        return error
