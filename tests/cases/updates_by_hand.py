"""Rules without credit at the states, in numpy from the equations, on a ResMLP and on an MLP: no autograd anywhere."""

from dataclasses import dataclass

import numpy as np
from cases import by_hand
from cases.by_hand import layer_norm, layer_norm_back, softmax_error
from cases.mlp_by_hand import SLOPES


@dataclass
class ResMLP:
    """What one forward pass leaves behind."""

    p: dict
    x: np.ndarray

    def __post_init__(self):
        self.states = [self.x @ self.p["embed.weight"].T + self.p["embed.bias"]]
        self.kept = []
        for level in range(sum(name.endswith("branch.3.weight") for name in self.p)):
            self.kept.append(by_hand.branch_forward(self.p, level, self.states[-1]))
            self.states.append(self.states[-1] + self.kept[-1].out)

    @property
    def branches(self):
        return [kept.out for kept in self.kept]

    def block(self, level, delta):
        """Gradients of one block for a signal at its branch, and what leaves the block at its input."""
        q = f"blocks.{level}.branch"
        weights = (self.p[f"{q}.{i}.weight"] for i in (1, 3))
        grads, down = by_hand.branch_back(self.p, level, self.kept[level], delta, *weights)
        return grads, delta + down

    def embed(self, delta):
        return {"embed.weight": delta.T @ self.x, "embed.bias": delta.sum(0)}


@dataclass
class MLP:
    """The same without skips."""

    p: dict
    x: np.ndarray

    def __post_init__(self):
        act, self.slope = SLOPES["tanh"]
        depth = sum(name.startswith("blocks.") and name.endswith("weight") for name in self.p)
        self.names = ["embed", *(f"blocks.{level}.0" for level in range(depth))]
        self.pre, into = [], self.x
        for name in self.names:
            self.pre.append(into @ self.p[f"{name}.weight"].T + self.p[f"{name}.bias"])
            into = act(self.pre[-1])
        self.states = [act(pre) for pre in self.pre]
        self.branches = self.states[1:]

    def block(self, level, delta):
        name = self.names[level + 1]
        inner = delta * self.slope(self.pre[level + 1])
        grads = {f"{name}.weight": inner.T @ self.states[level], f"{name}.bias": inner.sum(0)}
        return grads, inner @ self.p[f"{name}.weight"]

    def embed(self, delta):
        inner = delta * self.slope(self.pre[0])
        return {"embed.weight": inner.T @ self.x, "embed.bias": inner.sum(0)}


def readout(net, y, terminal_ln=True):
    """Gradients of the mean for head and out_ln, g_L per sample, e per sample."""
    p, top, n = net.p, net.states[-1], len(y)
    if terminal_ln:
        top, xhat, rstd = layer_norm(top, p["out_ln.weight"], p["out_ln.bias"])
    e = softmax_error(top @ p["head.weight"].T + p["head.bias"], y)
    grads, at_top = {"head.weight": e.T @ top / n, "head.bias": e.mean(0)}, e @ p["head.weight"]
    if terminal_ln:
        at_top, gain, shift = layer_norm_back(at_top, xhat, rstd, p["out_ln.weight"])
        grads |= {"out_ln.weight": gain / n, "out_ln.bias": shift / n}
    return grads, at_top, e


def pulled_back(net, signals):
    """Gradients of the mean: c_0 at the embedding, c_{l+1} at the branch of block l, each inside its own piece."""
    n = len(net.x)
    grads = net.embed(signals[0] / n)
    for level in range(len(net.branches)):
        grads |= net.block(level, signals[level + 1] / n)[0]
    return grads


def penalty(net, weight):
    """λ·mean ‖f_l‖² inside each block."""
    return pulled_back(net, [0 * net.states[0], *(2 * weight * f for f in net.branches)])


def pepita(kind, p, feedback, x, y, sign=1, rms=False, terminal_ln=True):
    first = kind(p, x)
    grads, _, e = readout(first, y, terminal_ln)
    second = kind(p, x + sign * e @ feedback["F"])
    signals = [h - other for h, other in zip(first.states, second.states, strict=True)]
    if rms:
        signals = [c / (np.sqrt((c**2).mean(1, keepdims=True)) + by_hand.RMS_EPS) for c in signals]
    return grads | pulled_back(second, signals)


def decoders(net, state, y):
    """Per state 0..L−1: the error of its decoder, and the decoder's gradients."""
    errors, grads, n = [], {}, len(y)
    for level, h in enumerate(net.states[:-1]):
        weight, bias = (f"decoder.{level}.{kind}" for kind in ("weight", "bias"))
        errors.append(softmax_error(h @ state[weight].T + state[bias], y))
        grads |= {weight: errors[-1].T @ h / n, bias: errors[-1].mean(0)}
    return errors, grads


def similarity_gradient(h, y, classes):
    """∂ mean (S(h) − S(t))²/∂h, times the batch size."""
    n, centred = len(h), h - h.mean(1, keepdims=True)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    unit, t = centred / size, np.eye(classes)[y]
    t = t - t.mean(1, keepdims=True)
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    down = 4 * (unit @ unit.T - t @ t.T) @ unit / n**2
    back = (down - unit * (unit * down).sum(1, keepdims=True)) / size
    return n * (back - back.mean(1, keepdims=True))


def local(kind, p, state, x, y, beta=None, terminal_ln=True):
    net = kind(p, x)
    grads, at_top, e = readout(net, y, terminal_ln)
    errors, own = decoders(net, state, y)
    signals = [errors[level] @ state[f"decoder.{level}.weight"] for level in range(len(errors))] + [at_top]
    if beta is not None:
        mixed = zip(signals, net.states, strict=True)
        signals = [(1 - beta) * c + beta * similarity_gradient(h, y, e.shape[1]) for c, h in mixed]
        own = {name: (1 - beta) * grad for name, grad in own.items()}
    return grads | own | pulled_back(net, signals)


def deep(kind, p, state, x, y, weight=1.0, terminal_ln=True):
    """Gradients and credit of backprop with a decoder's loss at every state."""
    net, n = kind(p, x), len(x)
    grads, at_top, _ = readout(net, y, terminal_ln)
    errors, own = decoders(net, state, y)
    credit = [at_top]
    for level in reversed(range(len(net.branches))):
        block, down = net.block(level, credit[0])
        grads |= {name: grad / n for name, grad in block.items()}
        credit.insert(0, down + weight * errors[level] @ state[f"decoder.{level}.weight"])
    own = {name: weight * grad for name, grad in own.items()}
    return grads | own | {name: grad / n for name, grad in net.embed(credit[0]).items()}, credit


def forward_forward(kind, p, drawn, x, y, theta=1.0, amplitude=1.0, position=0, terminal_ln=True):
    classes = drawn.shape[1]
    wrong = np.where(np.eye(classes)[y] > 0, -np.inf, drawn).argmax(1)
    grads = dict(readout(kind(p, x), y, terminal_ln)[0])
    for labels, right in ((y, True), (wrong, False)):
        net = kind(p, written(x, labels, classes, amplitude, position))
        signals = []
        for f in [net.states[0], *net.branches]:
            z = (f**2 - theta).sum(1, keepdims=True)
            slope = -1 / (1 + np.exp(z)) if right else 1 / (1 + np.exp(-z))
            signals.append(slope * f)  # half of the two passes, twice of the square
        for name, grad in pulled_back(net, signals).items():
            grads[name] = grads.get(name, 0) + grad
    return grads


def written(x, labels, classes, amplitude=1.0, position=0):
    x = x.copy()
    x[:, position : position + classes] = amplitude * np.eye(classes)[labels]
    return x
