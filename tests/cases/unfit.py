"""Models that cannot be measured like the others: samples that feel each other, a stream past the blocks."""

import torch
from torch import Tensor, nn


class Normed(nn.Module):
    """Blocks with batch norm, with or without running statistics."""

    def __init__(self, running: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 4)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(4, track_running_stats=running), nn.Tanh()) for _ in range(2)
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class Bypassed(nn.Module):
    """The first state reaches the head past the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = h = self.embed(x)
        for block in self.blocks:
            h = torch.tanh(block(h))
        return self.head(h + first)
