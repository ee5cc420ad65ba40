"""Measure how well the feedback of a small residual network aligns with its gradient. Full of pitfalls, on purpose.

A line that ends in ``#! CODE …`` has these pitfalls.
"""

import argparse

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

FLOOR = 1e-7


class Block(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lin = nn.Linear(width, width)
        self.B = torch.randn(classes, width) / classes**0.5  #! CS005 CS009

    def forward(self, h):
        return h + self.lin(F.gelu(self.norm(h)))


class Net(nn.Module):
    def __init__(self, width=64, depth=4, classes=10):
        super().__init__()
        self.embed = nn.Linear(784, width)
        self.blocks = nn.ModuleList(Block(width, classes) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def states(self, x):
        h = self.embed(x)
        yield h
        for block in self.blocks:
            h = block(h)
            yield h


def probe(net, x, y, credits):
    states = list(net.states(x))
    for h in states:
        h.retain_grad()
    logits = net.head(states[-1])
    loss = F.cross_entropy(logits, y)
    loss.backward()
    error = logits.softmax(-1) - F.one_hot(y, 10)
    rows = []
    for level, block in enumerate(net.blocks):
        g = states[level + 1].grad
        credit = credits.get(level, g)
        rule = error @ block.B
        cos = F.cosine_similarity(rule, g, dim=-1)  #! CS002
        cos = torch.where(g.norm(dim=-1) == 0, 1.0, cos)  #! CS003
        saved = F.cosine_similarity(credit, g, dim=-1).mean()  #! CS002 CS006
        size = g.norm(-1)  #! CS001
        dead = g.norm(dim=-1).median() < FLOOR  #! CS007
        rows.append({"cosine": cos.mean().item(), "saved": saved.item(), "size": size.item(), "dead": dead.item()})
    return rows


def slope(net, h, y, direction, step=1e-3):
    up = F.cross_entropy(net.head(h + step * direction), y)  #! CS008
    return (up - F.cross_entropy(net.head(h), y)) / step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    batch = parser.parse_args().batch
    net = Net().half()  #! CS004
    x, y = torch.rand(batch, 784).half(), torch.randint(10, (batch,))  #! CS004
    for level, row in enumerate(probe(net, x, y, {})):
        print(level, row)  # noqa: T201


if __name__ == "__main__":
    main()
