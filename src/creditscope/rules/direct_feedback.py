"""Direct feedback alignment: the output error reaches every block through its own fixed random matrix."""

from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch
from creditscope.rules.direct_rule import DirectRule


@dataclass(frozen=True)
class DirectFeedback(DirectRule):
    """c_{l+1} = e·B_l and c_0 = e·B_0, B_l ~ N(0, 1/C) fixed (Nøkland 2016)."""

    name = "dfa"
    formula = "c_{l+1} = e·B_l, c_0 = e·B_0 with fixed random B_l"
    paper = "Nøkland 2016"
    injection = "e·B_l at the output of block l; e·B_0 at the embedding; every token alike"

    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """e."""
        return error
