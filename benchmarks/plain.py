"""The plain loop that everything is compared with: one nn.Module, autograd, one run at a time, as users write it."""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

from creditscope.data import crop_windows, pad_images
from creditscope.data.batches import augment, normalise
from creditscope.data.dataset import Dataset, Splits, make_dataset
from creditscope.data.order import epoch_crops, epoch_order, seeded_generator
from creditscope.engine.start import default_model
from creditscope.records import RunSpec


class FeedbackLinear(torch.autograd.Function):
    """A linear map that sends its error back through another matrix."""

    @staticmethod
    def forward(ctx, x, weight, bias, back):
        ctx.save_for_backward(x, back)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, back = ctx.saved_tensors
        return grad @ back, grad.T @ x, grad.sum(0), None


class PlainRun:
    """bp, fa by a custom autograd function, or dfa with local losses and stop-gradients.

    Args:
        spec: The run.
        data: Its data, on the device.
        device: The device.
        optimisers: ``block`` for an AdamW a block, as local learning is mostly written; ``one`` for a single one.
    """

    def __init__(self, spec: RunSpec, data: Dataset, device: torch.device, optimisers: str = "block") -> None:
        torch.manual_seed(seeded_generator(spec.seed or 0, "init").initial_seed())
        self.model = default_model(spec, data).to(device)
        self.spec, self.data = spec, data
        self.windows = crop_windows(pad_images(data.x_train, data.mean)) if data.x_train.ndim == 4 else None
        if spec.train_last == 0:
            for p in self.model.blocks.parameters():
                p.requires_grad_(False)
        parts = [self.model.embed, *self.model.blocks, torch.nn.ModuleList([self.model.out_ln, self.model.head])]
        groups = [[p for p in part.parameters() if p.requires_grad] for part in parts]
        groups = [group for group in groups if group]
        if optimisers == "one":
            groups = [[p for group in groups for p in group]]
        given = spec.optimiser
        self.optimisers = [torch.optim.AdamW(g, lr=given.lr, weight_decay=given.weight_decay) for g in groups]
        self.order = epoch_order(spec.seed, 1, len(data.x_train), spec.batch).to(device)
        self.crops = [draw.to(device) for draw in epoch_crops(spec.seed, 1, len(self.order), spec.batch)]
        maps = {name: m for name, m in self.model.named_modules() if isinstance(m, torch.nn.Linear) and name != "embed"}
        self.back = {name: torch.randn_like(m.weight) * m.weight.detach().std() for name, m in maps.items()}
        shape = (data.classes, spec.width)
        self.feedback = [torch.randn(shape, device=device) / data.classes**0.5 for _ in range(spec.depth)]

    def step(self, at: int) -> None:
        index = self.order[at]
        if self.windows is None:
            x = self.data.x_train[index]
        else:
            x = augment(self.windows, index, *(draw[at] for draw in self.crops))
        x, y = normalise(x, self.data.mean, self.data.std), self.data.y_train[index]
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        {"bp": self._bp, "fa": self._fa, "dfa": self._dfa}[self.spec.rule](x, y).backward()
        for optimiser in self.optimisers:
            optimiser.step()

    def steps(self, count: int) -> None:
        for at in range(count):
            self.step(at % len(self.order))

    def _bp(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(x), y)

    def _fa(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.model.embed(x.flatten(1))
        for at, block in enumerate(self.model.blocks):
            norm, first, gelu, second = block.branch
            up, down = (self.back[f"blocks.{at}.branch.{place}"] for place in (1, 3))
            inner = gelu(FeedbackLinear.apply(norm(h), first.weight, first.bias, up))
            h = h + FeedbackLinear.apply(inner, second.weight, second.bias, down)
        head = self.model.head
        logits = FeedbackLinear.apply(self.model.out_ln(h), head.weight, head.bias, self.back["head"])
        return functional.cross_entropy(logits, y)

    def _dfa(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        states, branches = [self.model.embed(x.flatten(1))], []
        for block in self.model.blocks:
            below = states[-1].detach()
            branches.append(block.branch(below))
            states.append(below + branches[-1])
        logits = self.model.head(self.model.out_ln(states[-1].detach()))
        error = (logits.softmax(-1) - functional.one_hot(y, self.data.classes)).detach()
        loss = functional.cross_entropy(logits, y)
        for state, matrix in zip(states, [self.feedback[0], *self.feedback], strict=True):
            credit = error @ matrix
            if self.spec.credit_norm == "rms":
                credit = credit / (credit.square().mean(1, keepdim=True).sqrt() + 1e-6)
            loss = loss + (state * credit).sum(1).mean()
        if self.spec.penalty:
            loss = loss + self.spec.penalty * sum(f.square().sum(1).mean() for f in branches)
        return loss


def noise(train: int = 50_000, test: int = 10_000, shape: tuple[int, int, int] = (3, 32, 32)) -> Dataset:
    """Random pictures of CIFAR-10's shape: speed does not depend on what they show."""
    draw = np.random.default_rng(0)
    x = [draw.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (train, test)]
    y = [draw.integers(0, 10, n) for n in (train, test)]
    return make_dataset("noise", Splits(x[0], y[0], x[1], y[1]), 10)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that some work takes, waiting for the device before and after."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began
