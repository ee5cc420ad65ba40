"""BioTorch's LeNet by hand, in float64: states, true gradients, and what FA and DFA deliver."""

import numpy as np
import torch
from torch.nn import functional

BLOCKS = ["module.conv2", "module.conv3", "module.fc1"]


def pooled(h):
    return functional.max_pool2d(functional.relu(h), 2)


def rest(w, level, h):
    """The logits from one state on."""
    if level == 0:
        h = functional.conv2d(h, w["conv2.weight"], w["conv2.bias"])
    if level <= 1:
        h = functional.conv2d(pooled(h), w["conv3.weight"], w["conv3.bias"])
    if level <= 2:
        h = functional.relu(h).flatten(1) @ w["fc1.weight"].T + w["fc1.bias"]
    return functional.relu(h) @ w["fc2.weight"].T + w["fc2.bias"]


def back(f, at, signal):
    """What arrives before a layer without weights."""
    at = at.clone().requires_grad_()
    return torch.autograd.grad(f(at), at, signal)[0]


def by_hand(model, x, y):
    """States, true gradients, FA's signals, DFA's signals and the error, each for h_0..h_3."""
    w = {n.removeprefix("module."): p.detach().double() for n, p in model.named_parameters()}
    x = x.double()
    h0 = pooled(functional.conv2d(x, w["conv1.weight"], w["conv1.bias"]))
    h1 = functional.conv2d(h0, w["conv2.weight"], w["conv2.bias"])
    h2 = functional.conv2d(pooled(h1), w["conv3.weight"], w["conv3.bias"])
    h3 = functional.relu(h2).flatten(1) @ w["fc1.weight"].T + w["fc1.bias"]
    states = [h0, h1, h2, h3]
    error = rest(w, 3, h3).softmax(1) - functional.one_hot(y, 10).double()
    gradients = []
    for level, h in enumerate(states):
        h = h.clone().requires_grad_()
        (-rest(w, level, h).log_softmax(1)[torch.arange(len(y)), y]).sum().backward()
        gradients.append(h.grad)
    matrix = {n.removesuffix(".weight_backward"): b for n, b in w.items() if n.endswith("weight_backward")}
    return states, gradients, _delivered(model.mode, matrix, states, error), error


def _delivered(mode, matrix, states, error):
    _, h1, h2, h3 = states
    if mode == "dfa":
        # Every layer is told the error itself; a convolution is told it at every place of its output.
        at = {name: error[:, :, None, None].expand(-1, -1, size, size) for name, size in (("conv3", 1), ("conv2", 10))}
    c3 = (error @ matrix["fc2"]) * (h3 > 0)
    c2 = ((error if mode == "dfa" else c3) @ matrix["fc1"])[:, :, None, None] * (h2 > 0)
    into = functional.conv_transpose2d(at["conv3"] if mode == "dfa" else c2, matrix["conv3"])
    c1 = back(pooled, h1, into)
    c0 = functional.conv_transpose2d(at["conv2"] if mode == "dfa" else c1, matrix["conv2"])
    return [c0, c1, c2, c3]


def block_gradients(states, signals, error):
    """Per block, the gradient of its weights and biases when these signals arrive at its output, as one vector."""
    h0, h1, h2, _ = states
    inputs = [h0, pooled(h1), functional.relu(h2).flatten(1)]
    found = []
    for h, c in zip(inputs, signals[1:], strict=True):
        if h.ndim == 2:
            weight, bias = c.T @ h, c.sum(0)
        else:
            size = (c.shape[1], h.shape[1], 5, 5)
            weight, bias = torch.nn.grad.conv2d_weight(h, size, c), c.sum((0, 2, 3))
        found.append(torch.cat([weight.flatten(), bias]).numpy())
    return found


def flat(tensors):
    return [t.flatten(1).numpy() for t in tensors]


def mean_cosines(signals, gradients):
    return [
        np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(c, g, strict=True) if a.any()])
        for c, g in zip(flat(signals), flat(gradients), strict=True)
    ]
