"""MLP: a chain of linear maps and activations without any skip."""

import math

from torch import Tensor, nn

from creditscope.errors import BadInput, did_you_mean, setting

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "leaky-relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
    "identity": nn.Identity,
}


class MLP(nn.Module):
    """flatten → activation ∘ embed → L blocks, each activation ∘ Linear → (LayerNorm) → head.

    With the embedding there are L + 1 hidden layers of one width. Everything starts at the framework's default.

    Args:
        shape: Shape of one input sample.
        classes: Number of outputs.
        width: Width d of every hidden layer.
        depth: Number of blocks L.
        terminal_ln: Whether a LayerNorm stands before the head.
        activation: One of ``ACTIVATIONS``.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: int = 256,
        depth: int = 4,
        terminal_ln: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise BadInput(setting("model.activation", activation), f": {did_you_mean(activation, ACTIVATIONS)}")
        kind = ACTIVATIONS[activation]
        self.embed = nn.Linear(math.prod(shape), width)
        self.activation = kind()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), kind()) for _ in range(depth))
        self.out_ln = nn.LayerNorm(width) if terminal_ln else nn.Identity()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        h = self.activation(self.embed(x.flatten(1)))
        for block in self.blocks:
            h = block(h)
        return self.head(self.out_ln(h))  # type: ignore[no-any-return]
