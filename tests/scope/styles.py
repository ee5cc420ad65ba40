"""Direct and random feedback in the styles in which it is published, in our own words."""

import torch
from torch import nn
from torch.nn import functional


class TargetHook(torch.autograd.Function):
    """Identity forward; backward hands on a projection of the one-hot target that was given to the forward."""

    @staticmethod
    def forward(ctx, h, target, matrix):
        ctx.save_for_backward(h, target, matrix)
        return h.clone()

    @staticmethod
    def backward(ctx, grad):
        h, target, matrix = ctx.saved_tensors
        return (target @ matrix).view(h.shape), None, None


class TargetNet(nn.Module):
    """Each hidden layer ends in a hook that knows the target; nothing comes from above."""

    def __init__(self, inputs=6, width=8, classes=4):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, width), nn.Linear(width, width)])
        self.out = nn.Linear(width, classes)
        self.matrices = [torch.randn(classes, width) for _ in self.layers]
        self.target = None

    def forward(self, x):
        h = x
        for layer, matrix in zip(self.layers, self.matrices, strict=True):
            h = torch.tanh(layer(h))
            if self.target is not None:
                h = TargetHook.apply(h, self.target, matrix)
        return self.out(h)

    @staticmethod
    def step(model, batch):
        x, y = batch
        model.target = functional.one_hot(y, 4).float()
        model.zero_grad()
        (functional.cross_entropy(model(x), y, reduction="sum") / len(x)).backward()
        model.target = None
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h):
        return h + self.down(torch.tanh(self.up(self.norm(h))))


class DetachedNet(nn.Module):
    """Blocks whose inputs are cut off; the error is sent to each block's output by hand."""

    def __init__(self, inputs=6, width=8, classes=4):
        super().__init__()
        self.embed, self.head = nn.Linear(inputs, width), nn.Linear(width, classes)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(2))
        self.feedback = [torch.randn(classes, width) for _ in range(3)]

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)

    @staticmethod
    def step(model, batch):
        x, y = batch
        model.zero_grad()
        outs = [model.embed(x)]
        for block in model.blocks:
            outs.append(block(outs[-1].detach()))
        logits = model.head(outs[-1].detach())
        loss = functional.cross_entropy(logits, y)
        (error,) = torch.autograd.grad(loss, logits, retain_graph=True)
        loss.backward()
        torch.autograd.backward(outs, [error @ matrix for matrix in model.feedback])
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad


class HookNet(nn.Module):
    """A tensor hook on each hidden state puts another gradient in the place of the one that arrives."""

    def __init__(self, inputs=6, width=8, classes=4):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, width), nn.Linear(width, width)])
        self.out = nn.Linear(width, classes)
        self.matrices = [torch.randn(classes, width) for _ in self.layers]

    def forward(self, x):
        h, arrived = x, {}
        for layer, matrix in zip(self.layers, self.matrices, strict=True):
            h = torch.tanh(layer(h))
            if h.requires_grad:
                h.register_hook(lambda grad, matrix=matrix: arrived["error"] @ matrix)
        out = self.out(h)
        if out.requires_grad:
            out.register_hook(lambda grad: arrived.update(error=grad))
        return out
