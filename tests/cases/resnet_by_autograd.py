"""A ResNet for small images in plain functions, in training mode, and every rule on it by plain ``backward()``."""

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight


class SwappedConv(torch.autograd.Function):
    """A convolution whose error goes back through another kernel."""

    @staticmethod
    def forward(ctx, x, weight, kernel, stride):
        ctx.save_for_backward(x, weight, kernel)
        ctx.stride = stride
        return functional.conv2d(x, weight, None, stride, 1)

    @staticmethod
    def backward(ctx, delta):
        x, weight, kernel = ctx.saved_tensors
        down = conv2d_input(x.shape, kernel, delta, ctx.stride, 1)
        return down, conv2d_weight(x, weight.shape, delta, ctx.stride, 1), None, None


class SwappedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, matrix):
        ctx.save_for_backward(x, matrix)
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, delta):
        x, matrix = ctx.saved_tensors
        return delta @ matrix, delta.T @ x, delta.sum(0), None


class PlainResNet:
    """Parameters by their names in ours; running statistics are kept where ours keep them.

    Args:
        params: Leaves.
        buffers: Running statistics; empty for group norm.
        depth: Number of blocks.
        feedback: ``B.<path>`` of backward weights; empty for the true ones.
    """

    def __init__(self, params, buffers, depth, feedback=None):
        self.p, self.b, self.depth, self.feedback = params, buffers, depth, feedback or {}

    def conv(self, name, x, stride=1):
        kernel = self.feedback.get(f"B.{name}", self.p[f"{name}.weight"].detach())
        return SwappedConv.apply(x, self.p[f"{name}.weight"], kernel, stride)

    def norm(self, name, x, training):
        gain, shift = self.p[f"{name}.weight"], self.p[f"{name}.bias"]
        if f"{name}.running_mean" not in self.b:
            groups = next(g for g in (8, 4, 2, 1) if x.shape[1] % g == 0)
            parts = x.reshape(len(x), groups, -1)
            parts = (parts - parts.mean(2, keepdim=True)) / (parts.var(2, keepdim=True, unbiased=False) + 1e-5).sqrt()
            x = parts.reshape(x.shape)
        else:
            mean, var = self.b[f"{name}.running_mean"], self.b[f"{name}.running_var"]
            if training:
                n = x.numel() / x.shape[1]
                seen, spread = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
                mean.copy_(0.9 * mean + 0.1 * seen.detach())
                var.copy_(0.9 * var + 0.1 * spread.detach() * n / (n - 1))
                mean, var = seen, spread
            x = (x - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
        return x * gain[:, None, None] + shift[:, None, None]

    def embed(self, x, training=True):
        return torch.relu(self.norm("embed.1", self.conv("embed.0", x), training))

    def branch(self, level, h, training=True):
        q = f"blocks.{level}.branch"
        stride = 1 if self.p[f"{q}.0.weight"].shape[0] == h.shape[1] else 2
        inner = torch.relu(self.norm(f"{q}.1", self.conv(f"{q}.0", h, stride), training))
        return self.norm(f"{q}.4", self.conv(f"{q}.3", inner), training)

    def block(self, h, f):
        skip = torch.zeros_like(f)
        skip[:, : h.shape[1]] = h if h.shape == f.shape else h[:, :, ::2, ::2]
        return torch.relu(skip + f)

    def head(self, h):
        matrix = self.feedback.get("B.head", self.p["head.weight"].detach())
        return SwappedLinear.apply(h.mean((2, 3)), self.p["head.weight"], self.p["head.bias"], matrix)

    def states(self, x, training=True):
        found = [self.embed(x, training)]
        for level in range(self.depth):
            found.append(self.block(found[-1], self.branch(level, found[-1], training)))
        return found

    def transport(self, x, y, penalty=0.0, local=False):
        """Gradients of bp, or of fa where there is feedback; and the loss."""
        h, extra = self.embed(x), 0.0
        for level in range(self.depth):
            f = self.branch(level, h)
            apart = self.untouched().branch(level, h.detach()) if local and penalty else f
            extra = extra + penalty * apart.square().sum() / len(x)
            h = self.block(h, f)
        loss = functional.cross_entropy(self.head(h), y)
        return self._grads(loss + extra), loss

    def blockwise(self, signals, x, y, penalty=0.0):
        """Gradients of a rule that sends each block a signal, for the mean over the batch."""
        h = self.embed(x)
        total = (h * signals[0]).sum() / len(x)
        for level, c in enumerate(signals[1:]):
            h = h.detach()
            f = self.branch(level, h)
            h = self.block(h, f)
            total = total + ((h * c).sum() + penalty * f.square().sum()) / len(x)
        loss = functional.cross_entropy(self.head(h.detach()), y)
        return self._grads(total + loss), loss

    def untouched(self):
        """The same parameters with statistics of its own."""
        return PlainResNet(self.p, {name: b.clone() for name, b in self.b.items()}, self.depth, self.feedback)

    def direct(self, x, y, matrices, rms):
        """e·B for every state, B reshaped to it."""
        top = self.untouched().states(x)
        logits = self.head(top[-1]).detach()
        e = logits.softmax(1) - functional.one_hot(y, logits.shape[1])
        signals = [(e @ matrix).reshape(h.shape) for matrix, h in zip(matrices, top, strict=True)]
        if rms:
            signals = [c / (c.square().mean((1, 2, 3), keepdim=True).sqrt() + 1e-6) for c in signals]
        return signals

    def _grads(self, total: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.p, torch.autograd.grad(total, list(self.p.values())), strict=True))
