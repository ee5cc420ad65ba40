"""Feedback alignment written as a custom autograd function: what it delivers at each block, against backprop."""

import copy

import torch
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.scope import backward_credit


class FeedbackLinear(torch.autograd.Function):
    """Forward as ever; the error goes back through a fixed matrix instead of the weight."""

    @staticmethod
    def forward(ctx, x, weight, matrix):
        ctx.save_for_backward(x, matrix)
        return x @ weight.T

    @staticmethod
    def backward(ctx, delta):
        x, matrix = ctx.saved_tensors
        return delta @ matrix, delta.T @ x, None


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.register_buffer("matrix", torch.randn(width, width) / width**0.5)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return torch.tanh(FeedbackLinear.apply(h, self.weight, self.matrix))


def main() -> None:
    torch.manual_seed(0)
    data = cs.load_data("fashion-mini")
    x, x_test = (t.float().flatten(1) / 255 for t in (data.x_train, data.x_test[:512]))
    model = nn.Sequential(nn.Linear(784, 64), *(Block(64) for _ in range(3)), nn.Linear(64, 10))
    init = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for start in range(0, 2 * len(x), 64):
        at = slice(start % len(x), start % len(x) + 64)
        optimiser.zero_grad()
        functional.cross_entropy(model(x[at]), data.y_train[at]).backward()
        optimiser.step()
    # The reference is the true gradient, though the model's own backward never computes it.
    credit = backward_credit(model, feedback=["1.matrix", "2.matrix", "3.matrix"], redraws=499)
    audit = cs.audit_model(
        model, blocks=["1", "2", "3"], loader=(x_test, data.y_test[:512]), init=init, credit=credit, name="my-fa"
    )
    print(audit.to_text())


if __name__ == "__main__":
    main()
