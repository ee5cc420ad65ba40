"""The branch of a transformer block that ViT-Mini and GPT-mini share, from plain linear maps."""

import torch
from torch import Tensor, nn


class Branch(nn.Module):
    """Attention, then MLP, as one branch: a + mlp(ln(h + a)) with a = attention(ln(h)).

    Args:
        width: Width d of the residual stream.
        heads: Attention heads.
        ratio: Hidden width of the MLP over d.
        causal: Whether no token sees those behind it.
    """

    def __init__(self, width: int, heads: int, ratio: int, causal: bool = False) -> None:
        super().__init__()
        self.attention_ln = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp_ln = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width))

    def forward(self, h: Tensor) -> Tensor:
        """What is added to the stream."""
        attended = self.attention(self.attention_ln(h))
        return attended + self.mlp(self.mlp_ln(h + attended))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Multi-head self-attention in plain operations: they work under every torch.func transform.

    Args:
        width: Width d of the residual stream.
        heads: Attention heads.
        causal: Whether no token sees those behind it.
    """

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        """Every token's mixture of values."""
        query, key, value = (self._split(linear(h)) for linear in (self.query, self.key, self.value))
        scores = (query / query.shape[-1] ** 0.5) @ key.transpose(-2, -1)  # a query is smaller than its scores
        if self.causal:
            # No buffer: those are the run's own and would be stacked.
            behind = torch.ones(scores.shape[-2:], dtype=torch.bool, device=h.device).triu(1)
            scores = scores.masked_fill(behind, -torch.inf)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, h: Tensor) -> Tensor:
        return h.reshape(*h.shape[:2], self.heads, -1).transpose(1, 2)
