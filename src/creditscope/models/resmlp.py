"""ResMLP: a residual multilayer perceptron on flattened inputs."""

import math

from torch import Tensor, nn

from creditscope.models.residual import Residual


class ResMLP(nn.Module):
    """flatten → embed → L residual blocks → (LayerNorm) → head.

    Each branch is Linear ∘ GELU ∘ Linear ∘ LayerNorm without expansion; its second linear map starts at
    N(0, 0.01²), unless told otherwise, with zero bias, everything else at the framework's default.

    Args:
        shape: Shape of one input sample.
        classes: Number of outputs.
        width: Width d of the residual stream.
        depth: Number of blocks L.
        terminal_ln: Whether a LayerNorm stands before the head.
        second_sd: Standard deviation at which the second map of each branch starts.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: int = 256,
        depth: int = 4,
        terminal_ln: bool = True,
        second_sd: float = 0.01,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(math.prod(shape), width)
        self.blocks = nn.ModuleList(Residual(_branch(width, second_sd)) for _ in range(depth))
        self.out_ln = nn.LayerNorm(width) if terminal_ln else nn.Identity()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        h = self.embed(x.flatten(1))
        for block in self.blocks:
            h = block(h)
        return self.head(self.out_ln(h))  # type: ignore[no-any-return]


def _branch(width: int, second_sd: float) -> nn.Sequential:
    last = nn.Linear(width, width)
    nn.init.normal_(last.weight, std=second_sd)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), last)
