"""Watch a training loop: this one has a bug that makes the residual stream explode, and the watch ends it early."""

import torch
from torch import nn
from torch.nn import functional

import creditscope as cs


class Block(nn.Module):
    """The branch is a product of two maps: with too large a learning rate it runs away."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h + self.second(torch.relu(self.first(h)))


def main() -> None:
    torch.manual_seed(0)
    data = cs.load_data("fashion-mini")
    x, x_test = (t.float().flatten(1) / 255 for t in (data.x_train, data.x_test))
    blocks = [Block(64) for _ in range(3)]
    model = nn.Sequential(nn.Linear(784, 64), *blocks, nn.LayerNorm(64), nn.Linear(64, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=1.0)  # the bug
    with cs.watch(
        model,
        blocks=["1", "2", "3"],
        probe=(x_test[:512], data.y_test[:512]),
        on_alert=lambda alert: print("alert:", alert.message),
        stop=True,
        budget=0.5,
        directions=4,
    ) as scope:
        for epoch in range(1, 11):
            for start in range(0, 3200, 64):
                optimiser.zero_grad()
                functional.cross_entropy(model(x[start : start + 64]), data.y_train[start : start + 64]).backward()
                optimiser.step()
                scope.step()
            print(f"epoch {epoch} of 10 done")
            scope.epoch()
    print("ended as", scope.log.end.status)
    print("growth per block:", [f"{value:.3g}" for value in scope.log.last.growth])
    print("verdict:", scope.audit().claims[0].verdict.kind)


if __name__ == "__main__":
    main()
