"""Small nets such as a user might bring, with their data; and what of a model must never change."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.linear(self.norm(h)))


class Net(nn.Module):
    """embed → residual blocks → head, with a dropout and a buffer."""

    def __init__(self, inputs=6, width=8, depth=3, classes=4, seed=0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.dropout(h))


def samples(n=48, inputs=6, classes=4, seed=1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, inputs, generator=generator), torch.randint(classes, (n,), generator=generator)


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int = 5, lr: float = 0.1) -> nn.Module:
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr)
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model


class FeedbackLinear(torch.autograd.Function):
    """x·Wᵀ + b forward; the error goes back through B."""

    @staticmethod
    def forward(ctx, x, weight, bias, matrix):
        ctx.save_for_backward(x, matrix)
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, delta):
        x, matrix = ctx.saved_tensors
        return delta @ matrix, delta.T @ x, delta.sum(0), None


class FeedbackLayer(nn.Linear):
    def __init__(self, width: int, out: int) -> None:
        super().__init__(width, out)
        self.register_buffer("feedback", torch.randn(out, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return FeedbackLinear.apply(x, self.weight, self.bias, self.feedback)


class FeedbackBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = FeedbackLayer(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.layer(h))


class FeedbackNet(nn.Module):
    """Feedback alignment written as a custom autograd function."""

    def __init__(self, inputs=6, width=8, depth=3, classes=4, seed=0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(FeedbackBlock(width) for _ in range(depth))
        self.head = FeedbackLayer(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)

    @property
    def feedback_names(self) -> list[str]:
        return [*(f"blocks.{i}.layer.feedback" for i in range(len(self.blocks))), "head.feedback"]

    def true_logits(self, states_from: int, h: Tensor) -> Tensor:
        """The rest of the net from a state, in plain operations."""
        for block in list(self.blocks)[states_from:]:
            h = h + torch.tanh(functional.linear(h, block.layer.weight, block.layer.bias))
        return functional.linear(h, self.head.weight, self.head.bias)


def state_of_model(model: nn.Module) -> dict[str, object]:
    """Everything that must be as before: weights, buffers, modes, gradients, hooks, flags, randomness."""
    return {
        "weights": {name: p.detach().clone() for name, p in model.named_parameters()},
        "storage": {name: (id(p), p.data_ptr()) for name, p in model.named_parameters()},
        "buffers": {name: b.clone() for name, b in model.named_buffers()},
        "places": {name: id(b) for name, b in model.named_buffers()},
        "modes": [m.training for m in model.modules()],
        "flags": [p.requires_grad for p in model.parameters()],
        "grads": [p.grad for p in model.parameters()],
        "values": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "hooks": [
            (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks), len(m._backward_pre_hooks))
            for m in model.modules()
        ],
        "attributes": [{n: id(v) for n, v in vars(m).items()} for m in model.modules()],
        "apply": torch.autograd.Function.__dict__["apply"].__func__.__code__,
        "rng": torch.get_rng_state(),
    }


def same(one: dict[str, object], two: dict[str, object]) -> bool:
    def equal(a: object, b: object) -> bool:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return torch.equal(a, b)
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
        return a == b

    grads = all(a is b for a, b in zip(one["grads"], two["grads"], strict=True))
    return grads and all(equal(one[k], two[k]) for k in one if k != "grads")
