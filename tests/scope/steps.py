"""Training steps such as published code holds them, in our own words: ``update(model, batch)``, and models for them."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.blocks import Batch, Blocks, Task
from creditscope.blocks.rule import Moment
from creditscope.rules.build import rule_named

LR = 0.05


def mlp(seed=0, width=12, depth=3, inputs=6, classes=4):
    torch.manual_seed(seed)
    layers = [nn.Linear(inputs, width), nn.Tanh()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def linears(model):
    return [m for m in model.modules() if isinstance(m, nn.Linear)]


def problem(n=256, inputs=6, classes=4, seed=1):
    """Labels that follow from the inputs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, inputs, generator=generator)
    return x, (x @ torch.randn(inputs, classes, generator=torch.Generator().manual_seed(9))).argmax(1)


def backprop(model, batch):
    x, y = batch
    model.zero_grad()
    functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= LR * p.grad


def adam(model):
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

    def update(model, batch):
        x, y = batch
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return update, optimiser


class Pepita:
    """Two forward passes: of the input, and of the input changed by the error through a fixed random matrix."""

    def __init__(self, inputs=6, classes=4, seed=5):
        self.matrix = torch.randn(inputs, classes, generator=torch.Generator().manual_seed(seed)) * 0.05

    @torch.no_grad()
    def __call__(self, model, batch):
        x, y = batch
        clean, out = activities(model, x)
        error = out.softmax(1) - functional.one_hot(y, out.shape[1])
        changed, _ = activities(model, x + error @ self.matrix.T)
        for at, layer in enumerate(linears(model)):
            top = at == len(linears(model)) - 1
            delta = error if top else clean[at + 1] - changed[at + 1]
            layer.weight -= LR * delta.T @ changed[at] / len(x)
            layer.bias -= LR * delta.mean(0)


def activities(model, x):
    """What enters each linear layer, and the outputs."""
    entering, h = [], x
    for module in model:
        if isinstance(module, nn.Linear):
            entering.append(h)
        h = module(h)
    return entering, h


def weight_perturbation(model, batch):
    """One random direction, followed by as much as the loss rises along it."""
    x, y = batch
    with torch.no_grad():
        noise = [1e-3 * torch.randn_like(p) for p in model.parameters()]
        before = functional.cross_entropy(model(x), y)
        for p, n in zip(model.parameters(), noise, strict=True):
            p += n
        rise = functional.cross_entropy(model(x), y) - before
        for p, n in zip(model.parameters(), noise, strict=True):
            p -= n + LR * rise / 1e-6 * n


class LocalLosses:
    """Each hidden layer has a readout of its own, and no gradient leaves a layer."""

    def __init__(self, model, classes=4):
        torch.manual_seed(3)
        self.readouts = nn.ModuleList(nn.Linear(layer.out_features, classes) for layer in linears(model)[:-1])
        self.optimiser = torch.optim.SGD([*model.parameters(), *self.readouts.parameters()], lr=LR, momentum=0.9)

    def __call__(self, model, batch):
        x, y = batch
        self.optimiser.zero_grad()
        h, at = x, 0
        for module in model[:-1]:
            h = module(h.detach() if isinstance(module, nn.Linear) else h)
            if isinstance(module, nn.Tanh):
                functional.cross_entropy(self.readouts[at](h), y).backward(retain_graph=True)
                at += 1
        functional.cross_entropy(model[-1](h.detach()), y).backward()
        self.optimiser.step()


def hebbian(model, batch):
    """Looks at no label."""
    entering, _ = activities(model, batch[0])
    with torch.no_grad():
        for layer, h in zip(linears(model), entering, strict=True):
            layer.weight += 1e-3 * (h @ layer.weight.T).T @ h / len(h)


class Recurrent(nn.Module):
    def __init__(self, seed=0, inputs=6, width=12, classes=4):
        super().__init__()
        torch.manual_seed(seed)
        self.cell = nn.RNNCell(2, width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, cut: bool = False) -> Tensor:
        h = x.new_zeros(len(x), self.cell.hidden_size)
        for part in x.split(2, dim=1):
            h = torch.tanh(self.mix(self.cell(part, h.detach() if cut else h)))
        return self.head(h)


def no_time(model, batch):
    """Backprop that stops at the last step in time, as eligibility traces of length one do."""
    x, y = batch
    model.zero_grad()
    functional.cross_entropy(model(x, cut=True), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= LR * p.grad


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v)

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1 + 4 * v.abs()) ** 2


class Spiking(nn.Module):
    def __init__(self, seed=0, inputs=6, width=12, classes=4):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second, self.head = (
            nn.Linear(inputs, width),
            nn.Linear(width, width),
            nn.Linear(width, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        a, b, out = 0.0, 0.0, 0.0
        for _ in range(4):
            a = 0.8 * a + self.first(x)
            b = 0.8 * b + self.second(Spike.apply(a - 0.5))
            out = out + self.head(Spike.apply(b - 0.1))
        return out / 4


class RuleStep:
    """One of our rules as a user's step: plain gradient descent on the model, and on what of its state is trained."""

    def __init__(self, rule, model, x, lr=LR, seed=0):
        self.rule, self.lr = rule_named(rule), lr
        blocks = Blocks.of(model, None)
        self.task = Task.of(blocks, lambda z, y: functional.cross_entropy(z, y, reduction="none"), x[:2])
        params = {name: p.detach() for name, p in model.named_parameters()}
        self.state = self.rule.init(self.task, params, torch.Generator().manual_seed(seed))
        self.done = torch.zeros((), dtype=torch.long)

    def __call__(self, model, batch):
        x, y = batch
        params = {name: p.detach() for name, p in model.named_parameters()}
        shapes = self.rule.noise(self.task, params, len(x))
        noise = {name: torch.randn(shape) for name, shape in shapes.items()}
        phase = self.rule.phase(Moment(int(self.done), 1000, 100))
        step = self.rule.step(self.task, params, self.state, Batch(x, y), noise, phase)
        trained = self.rule.trained(self.state, params)
        for name, value in step.state.items():
            self.state[name].copy_(value)
        for name, share in step.decay.items():
            (self.state[name] if name in trained else params[name]).mul_(1 - self.lr * share)
        for name, grad in step.grads.items():
            (self.state[name] if name in trained else params[name]).sub_(self.lr * grad)
        self.done += 1
