"""GPT-mini: a small pre-LayerNorm decoder that predicts the next character of a text."""

import torch
from torch import Tensor, nn

from creditscope.errors import BadInput
from creditscope.models.residual import Residual
from creditscope.models.transformer import Branch


class GPTMini(nn.Module):
    """Characters → embed (+ positions) → L pre-LN blocks with causal attention → LayerNorm → head on every token.

    Plain linear maps for q, k, v and out, so that a rule can reach each of them. Embeddings start at N(0, 1/d), so that
    a head tied to them starts at logits of order 1; everything else at the framework's default.

    Args:
        shape: Shape (tokens,) of one sequence.
        classes: Number of characters.
        width: Width d of the residual stream.
        depth: Number of blocks L.
        terminal_ln: Whether a LayerNorm stands before the head.
        heads: Attention heads.
        ratio: Hidden width of the MLP over d.
        tied: Whether the head uses the embedding's matrix.
    """

    reads_tokens = True

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: int = 128,
        depth: int = 4,
        terminal_ln: bool = True,
        heads: int = 4,
        ratio: int = 4,
        tied: bool = False,
    ) -> None:
        super().__init__()
        if len(shape) != 1:
            raise BadInput(f"gpt-mini wants sequences of characters, shape (tokens,), got {shape}")
        if width % heads:
            raise BadInput(f"gpt-mini has {heads} heads and wants a width that is a multiple of {heads}, got {width}")
        self.embed = nn.Embedding(classes, width)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.position = nn.Parameter(torch.randn(1, *shape, width) * width**-0.5)
        self.blocks = nn.ModuleList(Residual(Branch(width, heads, ratio, causal=True)) for _ in range(depth))
        self.out_ln = nn.LayerNorm(width) if terminal_ln else nn.Identity()
        self.head = nn.Linear(width, classes)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch, for every token those of the next character."""
        h = self.embed(x) + self.position
        for block in self.blocks:
            h = block(h)
        return self.head(self.out_ln(h))  # type: ignore[no-any-return]
