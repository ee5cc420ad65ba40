"""Audit a model of your own, trained by a loop of your own: no rewriting, and nothing of the model is changed."""

import copy

import torch
from torch import nn
from torch.nn import functional

import creditscope as cs


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h + torch.relu(self.norm(self.conv(h)))


def build() -> nn.Sequential:
    torch.manual_seed(0)
    stem, head = nn.Conv2d(1, 8, 3, stride=4), nn.Linear(8 * 7 * 7, 10)
    return nn.Sequential(stem, Block(8), Block(8), nn.Flatten(), head)


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for start in range(0, len(x) - 63, 64):
        optimiser.zero_grad()
        functional.cross_entropy(model(x[start : start + 64]), y[start : start + 64]).backward()
        optimiser.step()


def main() -> None:
    data = cs.load_data("fashion-mini")
    x, x_test = data.x_train[:6400].float() / 255, data.x_test.float() / 255
    model = build()
    init = copy.deepcopy(model.state_dict())  # before training: to see later what moved
    twin = cs.frozen_copy(model, blocks=["1", "2"])  # the matched baseline: same recipe, blocks frozen
    train(model, x, data.y_train[:6400])
    train(twin, x, data.y_train[:6400])
    audit = cs.audit_model(
        model, blocks=["1", "2"], loader=(x_test, data.y_test), init=init, baseline=twin, name="my-cnn", directions=8
    )
    print(audit.to_text())


if __name__ == "__main__":
    main()
