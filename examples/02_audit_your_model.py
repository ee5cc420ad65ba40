"""Judge a method of your own, trained by a loop of your own: one call trains its controls and gives a verdict."""

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional

import creditscope as cs


class RandomBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, weight, bias, matrix):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(h, matrix)
        return functional.linear(h, weight, bias)

    @staticmethod
    def backward(ctx, delta):  # type: ignore[no-untyped-def]
        h, matrix = ctx.saved_tensors
        return delta @ matrix, delta.T @ h, delta.sum(0), None


class Layer(nn.Linear):
    exact = False

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("feedback", torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h) if self.exact else RandomBack.apply(h, self.weight, self.bias, self.feedback)


def build(seed: int) -> nn.Module:
    hidden = [nn.Sequential(Layer(10, 10), nn.Tanh()) for _ in range(3)]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), *hidden, Layer(10, 10))


def fit(model: nn.Module, data: tuple[tuple[Tensor, Tensor], ...], seed: int) -> None:
    x, y = data[0]
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=6e-3)
    for some in (some for _ in range(3) for some in torch.randperm(len(x)).split(128)):
        optimiser.zero_grad()
        functional.cross_entropy(model(x[some]), y[some]).backward()
        optimiser.step()


def fit_backprop(model: nn.Module, data: tuple[tuple[Tensor, Tensor], ...], seed: int) -> None:
    model.apply(lambda module: vars(module).update(exact=True))
    fit(model, data, seed)


if __name__ == "__main__":
    images = cs.load_data("fashion-mini")
    data = (images.x_train.float() / 255, images.y_train), (images.x_test.float() / 255, images.y_test)
    credit = functools.partial(cs.backward_credit, feedback=[f"{layer}.feedback" for layer in ("2.0", "3.0", "4.0", 5)])
    print(cs.judge(build, fit, data, ["2", "3", "4"], credit, fit_backprop, seeds=4, name="my-fa").to_text())
