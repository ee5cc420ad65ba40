"""Every rule on a ViT-Mini as a surrogate loss and plain ``backward()``: no taps, no carriers, no functional calls."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.models.vit_mini import ViTMini


class SwappedLinear(torch.autograd.Function):
    """x·Wᵀ + b forward; the error goes back through B, the weight's gradient is exact."""

    @staticmethod
    def forward(ctx, x, weight, bias, matrix):
        ctx.save_for_backward(x, matrix)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, delta):
        x, matrix = ctx.saved_tensors
        flat, flat_x = delta.reshape(-1, delta.shape[-1]), x.reshape(-1, x.shape[-1])
        return delta @ matrix, flat.T @ flat_x, flat.sum(0), None


class AlignedLinear(nn.Module):
    def __init__(self, linear: nn.Linear, matrix: Tensor) -> None:
        super().__init__()
        self.weight, self.bias, self.matrix = linear.weight, linear.bias, matrix

    def forward(self, x: Tensor) -> Tensor:
        return SwappedLinear.apply(x, self.weight, self.bias, self.matrix)


def with_feedback(model: nn.Module, feedback: dict[str, Tensor]) -> nn.Module:
    """A copy whose linear maps named in the feedback are replaced by ones with a backward weight."""
    model = copy.deepcopy(model)
    for key, matrix in feedback.items():
        path, _, leaf = key.removeprefix("B.").rpartition(".")
        parent = model.get_submodule(path)
        setattr(parent, leaf, AlignedLinear(getattr(parent, leaf), matrix))
    return model


def embed(model: ViTMini, x: Tensor) -> Tensor:
    """Patches cut out one by one, in reading order."""
    side = model.patch
    patches = [
        x[:, :, top : top + side, left : left + side].flatten(1)
        for top in range(0, x.shape[2], side)
        for left in range(0, x.shape[3], side)
    ]
    tokens = [model.cls[:, 0].expand(len(x), -1), *(model.embed(patch) for patch in patches)]
    return torch.stack(tokens, 1) + model.position


def readout(model: ViTMini, h: Tensor) -> Tensor:
    return model.head(model.out_ln(h[:, 0]))


def size(branch: Tensor) -> Tensor:
    """‖f‖² summed over features, averaged over tokens and the batch."""
    return branch.square().sum(-1).mean()


def transport(model, feedback, x, y, penalty, local):
    """BP and the FA family: (gradients, credit)."""
    model = with_feedback(model, feedback)
    states = [embed(model, x)]
    loss = torch.zeros((), dtype=x.dtype)
    for block in model.blocks:
        states[-1].retain_grad()
        f = block.branch(states[-1])
        loss = loss + penalty * size(block.branch(states[-1].detach()) if local else f)
        states.append(states[-1] + f)
    states[-1].retain_grad()
    functional.cross_entropy(readout(model, states[-1]), y).backward(retain_graph=True)
    credit = [h.grad.clone() * len(x) for h in states]
    if penalty:
        loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}, credit


def blockwise(model, signals, x, y, penalty):
    """Block rules: Σ mean⟨f_l(stopgrad h_l), c⟩ + λ·size, and the task loss for the readout alone."""
    model = copy.deepcopy(model)
    h = embed(model, x)
    loss = (h * signals[0]).sum() / len(x)
    for block, c in zip(model.blocks, signals[1:], strict=True):
        h = h.detach()
        f = block.branch(h)
        loss = loss + (f * c).sum() / len(x) + penalty * size(f)
        h = h + f
    loss = loss + functional.cross_entropy(readout(model, h.detach()), y)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


def signals_of(method, model, feedback, x, y):
    """Credit of a block rule."""
    with torch.no_grad():
        h = embed(model, x)
        for block in model.blocks:
            h = h + block.branch(h)
    top = h.requires_grad_()
    logits = readout(model, top)
    if method == "fa-block":
        signals = [torch.autograd.grad(functional.cross_entropy(logits, y, reduction="sum"), top)[0]]
        for level in reversed(range(len(model.blocks))):
            signals.insert(0, torch.einsum("ntd,dk->ntk", signals[0], feedback[f"M.{level}"]))
        return signals
    e = logits.detach().softmax(-1) - functional.one_hot(y, logits.shape[-1])
    signals = []
    for level in (0, *range(len(model.blocks))):
        c = e @ feedback[f"B.{level}"]
        if method == "dfa-rms":
            c = c / (c.norm(dim=1, keepdim=True) / c.shape[1] ** 0.5 + 1e-6)
        signals.append(c[:, None].expand_as(top).detach())
    return signals
