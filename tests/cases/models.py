"""Small float64 models, ours and such as a user might bring, and the task and batch that go with each."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.blocks import Batch, Blocks, Task
from creditscope.models.mlp import MLP
from creditscope.models.resmlp import ResMLP
from creditscope.models.vit_mini import ViTMini
from creditscope.rules.wrappers import Penalised


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample loss."""
    return functional.cross_entropy(logits, y, reduction="none")


def scrambled(model: nn.Module, seed: int = 0, sd: float = 0.5) -> nn.Module:
    """The model in float64 with every parameter random: no zero bias or unit gain hides a wrong formula."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * sd)
    return model


def resmlp(inputs=5, classes=4, width=6, depth=3, terminal_ln=True, seed=0) -> nn.Module:
    return scrambled(ResMLP((inputs,), classes, width=width, depth=depth, terminal_ln=terminal_ln), seed)


def mlp(inputs=5, classes=4, width=6, depth=3, terminal_ln=True, seed=0) -> nn.Module:
    return scrambled(MLP((inputs,), classes, width, depth, terminal_ln, activation="tanh"), seed)


def vit(width=8, depth=2, terminal_ln=True, seed=0) -> nn.Module:
    return scrambled(ViTMini((2, 8, 8), 3, width=width, depth=depth, terminal_ln=terminal_ln, heads=2), seed, sd=0.3)


def task_of(model: nn.Module, x: Tensor, where=None) -> Task:
    return Task.of(Blocks.of(model, where), cross_entropy, x)


def params_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def batch_of(shape: tuple[int, ...], classes: int, n: int = 3, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return Batch(x, torch.randint(classes, (n,), generator=generator))


def seeded_generator(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class ConvNet(nn.Module):
    """Feature maps that shrink, then vectors: states of three shapes, one block with a skip, one without."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 3, 3, padding=1)
        self.same = SkipConv()
        self.down = nn.Sequential(nn.Conv2d(3, 2, 3, stride=2, padding=1), nn.Tanh())
        self.flat = nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.Tanh())
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flat(self.down(self.same(torch.tanh(self.stem(x))))))


class SkipConv(nn.Module):
    """h + conv(h), without a submodule that is called branch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.conv(h))


CONV_BLOCKS = ("same", "down", "flat")


def conv_net(seed: int = 0) -> nn.Module:
    return scrambled(ConvNet(), seed)


def plain_mlp(width: int = 4, depth: int = 3, seed: int = 0) -> nn.Module:
    """A Sequential without any skip; blocks are its middle layers."""
    layers = [nn.Linear(5, width), *(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))]
    return scrambled(nn.Sequential(*layers, nn.Linear(width, 3)), seed)


PLAIN_BLOCKS = ("1", "2", "3")


class TupleBlock(nn.Module):
    """Hands on the state and, beside it, a tensor that depends on this block's weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, h: Tensor, beside: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.tanh(self.linear(h))
        return h + out + beside, out


class TupleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 4)
        self.blocks = nn.ModuleList(TupleBlock(4) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        beside = torch.zeros_like(h)
        for block in self.blocks:
            h, beside = block(h, beside)
        return self.head(h)


def tuple_net(seed: int = 0) -> nn.Module:
    return scrambled(TupleNet(), seed)


class TokenNet(nn.Module):
    """Indices in, tokens inside."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.lookup(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


def assign(rule, task, params, state, batch, penalty=None):
    """One step of a rule, with a penalty where one is given."""
    rule = rule if penalty is None else Penalised(rule, penalty)
    return rule.step(task, params, state, batch, {}, "")
