"""Feedback alignment and its cosines, written out."""

import numpy as np
import torch
from torch.nn import functional


def cosine_by_hand(c, g):
    return float(np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(c, g, strict=True)]))


def delivered_by_hand(model, x, y):
    """Feedback alignment in numpy: the error through B, the slope of tanh, the skip."""
    h = model.embed(x).detach()
    states, slopes = [h], []
    for block in model.blocks:
        inner = torch.tanh(functional.linear(h, block.layer.weight, block.layer.bias))
        slopes.append(1 - inner**2)
        h = (h + inner).detach()
        states.append(h)
    error = functional.linear(h, model.head.weight, model.head.bias).softmax(1) - functional.one_hot(y, 4)
    signals = [(error @ model.head.feedback).detach()]
    for block, slope in zip(reversed(model.blocks), reversed(slopes), strict=True):
        signals.insert(0, (signals[0] + (signals[0] * slope) @ block.layer.feedback).detach())
    gradients = []
    for level, state in enumerate(states):
        state = state.clone().requires_grad_()
        loss = functional.cross_entropy(model.true_logits(level, state), y, reduction="sum")
        gradients.append(torch.autograd.grad(loss, state)[0])
    return [c.numpy() for c in signals], [g.numpy() for g in gradients]
