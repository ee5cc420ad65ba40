"""ViT-Mini: a small pre-LayerNorm vision transformer with a class token."""

import torch
from torch import Tensor, nn

from creditscope.errors import BadInput, setting
from creditscope.models.residual import Residual
from creditscope.models.transformer import Branch


class ViTMini(nn.Module):
    """Patches → embed (+ class token, positions) → L pre-LN blocks → LayerNorm → head on the class token.

    Plain linear maps for q, k, v and out, so that a rule can reach each of them.

    Args:
        shape: Shape (channels, height, width) of one image.
        classes: Number of outputs.
        width: Width d of the residual stream.
        depth: Number of blocks L.
        terminal_ln: Whether a LayerNorm stands before the head.
        patch: Side of a square patch.
        heads: Attention heads.
        ratio: Hidden width of the MLP over d.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: int = 128,
        depth: int = 4,
        terminal_ln: bool = True,
        patch: int = 4,
        heads: int = 4,
        ratio: int = 2,
    ) -> None:
        super().__init__()
        if len(shape) != 3 or shape[1] % patch or shape[2] % patch:
            raise BadInput(
                f"vit-mini wants images whose sides are multiples of {patch}, got shape {shape}; use ",
                setting("model", "resmlp"),
            )
        if width % heads:
            raise BadInput(f"vit-mini has {heads} heads and wants a width that is a multiple of {heads}, got {width}")
        channels, height, breadth = shape
        self.patch = patch
        tokens = (height // patch) * (breadth // patch)
        self.embed = nn.Linear(channels * patch * patch, width)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, tokens + 1, width) * 0.02)
        self.blocks = nn.ModuleList(Residual(Branch(width, heads, ratio)) for _ in range(depth))
        self.out_ln = nn.LayerNorm(width) if terminal_ln else nn.Identity()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        patches = self.embed(_patches(x, self.patch))
        h = torch.cat([self.cls.expand(len(x), -1, -1), patches], dim=1) + self.position
        for block in self.blocks:
            h = block(h)
        return self.head(self.out_ln(h[:, 0]))  # type: ignore[no-any-return]


def _patches(x: Tensor, side: int) -> Tensor:
    """(N, C, H, W) → (N, tokens, C·side·side)."""
    n, channels, height, width = x.shape
    grid = x.reshape(n, channels, height // side, side, width // side, side)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
