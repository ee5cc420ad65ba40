"""Direct random target projection: the label alone reaches every block, through its own fixed random matrix."""

from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import Batch, Identity, Proof, Reported
from creditscope.records.rule_card import Sketch
from creditscope.rules.direct_rule import DirectRule


@dataclass(frozen=True)
class DirectTarget(DirectRule):
    """c_{l+1} = −t·B_l and c_0 = −t·B_0, t the one-hot label, B_l ~ N(0, 1/C) fixed (Frenkel et al. 2021).

    The output is never asked. B is symmetric about 0, so the sign is a convention.
    """

    name = "drtp"
    formula = "c_{l+1} = −t·B_l, c_0 = −t·B_0 with fixed random B_l, t the one-hot label"
    paper = "Frenkel, Lefebvre & Bol 2021"
    injection = "−t·B_l at the output of block l; −t·B_0 at the embedding; one for all tokens, or one each"
    identity = Identity(
        needs=("the label", "a fixed random matrix per block"),
        spares=(
            "the output and its error",
            "the weights on the way back",
            "a backward pass through more than one block",
        ),
        proofs=(
            Proof(
                "all samples of a class get one signal, whatever the logits",
                "test_all_samples_of_a_class_get_one_signal_and_the_logits_never_matter",
            ),
        ),
        reported=(Reported("FC-1024, CIFAR-10", "≈ 45.9 %", "quoted beside PEPITA"),),
        differs=("ChFrenkel/DirectRandomTargetProjection sends +t·B: in law the same, as B is symmetric about 0",),
    )
    sketch = Sketch(text="label times a random matrix, straight to each block", route="direct")

    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """−t."""
        classes = torch.arange(error.shape[-1], device=error.device)
        return -(batch.y.unsqueeze(-1) == classes).to(error.dtype)
