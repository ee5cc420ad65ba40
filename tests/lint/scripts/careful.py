"""The same measurement as ``careless.py`` without its pitfalls: the linter must stay silent."""

import argparse

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

FLOOR_PER_SAMPLE = 1.28e-5


class Block(nn.Module):
    def __init__(self, width, classes, generator):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lin = nn.Linear(width, width)
        self.register_buffer("B", torch.randn(classes, width, generator=generator) / classes**0.5)

    def forward(self, h):
        return h + self.lin(F.gelu(self.norm(h)))


class Net(nn.Module):
    def __init__(self, seed, width=64, depth=4, classes=10):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embed = nn.Linear(784, width)
        self.blocks = nn.ModuleList(Block(width, classes, generator) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def states(self, x):
        h = self.embed(x)
        yield h
        for block in self.blocks:
            h = block(h)
            yield h


def cosine(a, b):
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def probe(net, x, y):
    states = list(net.states(x))
    logits = net.head(states[-1])
    loss = F.cross_entropy(logits, y, reduction="sum")
    gradients = torch.autograd.grad(loss, states)
    error = logits.softmax(-1) - F.one_hot(y, 10)
    rows = []
    for block, g in zip(net.blocks, gradients[1:], strict=True):
        cos = cosine(error @ block.B, g)
        size = g.norm(dim=-1).median()
        rows.append(
            {
                "cosine": cos.nanmean().item(),
                "undefined": cos.isnan().sum().item(),
                "size": size.item(),
                "dead": (size < FLOOR_PER_SAMPLE).item(),
            }
        )
    return rows


def slope(net, h, y, direction):
    h, direction = h.double(), direction.double()
    step = 1e-3 * h.norm(dim=-1).median()
    return (F.cross_entropy(net.head(h + step * direction), y) - F.cross_entropy(net.head(h), y)) / step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    net = Net(parser.parse_args().seed).double()
    x, y = torch.rand(128, 784, dtype=torch.float64), torch.randint(10, (128,))
    for level, row in enumerate(probe(net, x, y)):
        print(level, row)  # noqa: T201


if __name__ == "__main__":
    main()
