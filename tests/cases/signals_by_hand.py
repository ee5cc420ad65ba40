"""Credit of the rules that run blocks one by one, in numpy from the equations, and what their nets learn."""

import math
from dataclasses import dataclass

import numpy as np
from cases import by_hand, mlp_by_hand
from cases.by_hand import gelu, gelu_slope, layer_norm, layer_norm_back, softmax_error


@dataclass
class Pieces:
    """A ResMLP, or an MLP of tanh layers, block by block; both with a norm before the head."""

    p: dict

    @property
    def residual(self):
        return "blocks.0.branch.1.weight" in self.p

    @property
    def depth(self):
        return len({name.split(".")[1] for name in self.p if name.startswith("blocks.")})

    def embed(self, x):
        h = x @ self.p["embed.weight"].T + self.p["embed.bias"]
        return h if self.residual else np.tanh(h)

    def block(self, level, h):
        if self.residual:
            return h + by_hand.branch_forward(self.p, level, h).out
        return np.tanh(h @ self.p[f"blocks.{level}.0.weight"].T + self.p[f"blocks.{level}.0.bias"])

    def back(self, level, h, delta):
        """What a signal at the block's output is at its input h."""
        if self.residual:
            w1, w2 = (self.p[f"blocks.{level}.branch.{i}.weight"] for i in (1, 3))
            kept = by_hand.branch_forward(self.p, level, h)
            return delta + by_hand.branch_back(self.p, level, kept, delta, w1, w2)[1]
        out = self.block(level, h)
        return (delta * (1 - out**2)) @ self.p[f"blocks.{level}.0.weight"]

    def top(self, h, y):
        """The loss's gradient at a last state."""
        top, xhat, rstd = layer_norm(h, self.p["out_ln.weight"], self.p["out_ln.bias"])
        e = softmax_error(top @ self.p["head.weight"].T + self.p["head.bias"], y)
        return layer_norm_back(e @ self.p["head.weight"], xhat, rstd, self.p["out_ln.weight"])[0]

    def states(self, x):
        states = [self.embed(x)]
        for level in range(self.depth):
            states.append(self.block(level, states[-1]))
        return states

    def true(self, states, y):
        """g_0..g_L."""
        g = [self.top(states[-1], y)]
        for level in reversed(range(self.depth)):
            g.insert(0, self.back(level, states[level], g[0]))
        return g

    def backward(self, method, x, y, penalty, given):
        """Gradients of the parameters for a credit that was found elsewhere."""
        if self.residual:
            return by_hand.backward(method, self.p, {}, x, y, penalty, given=given)
        return mlp_by_hand.backward(method, self.p, {}, x, y, penalty, activation="tanh", given=given)


def fg_act(pieces, state, noise, x, y, joint=False):
    g = pieces.true(pieces.states(x), y)
    slopes = [(noise[f"v.{level}"] * each).sum(1, keepdims=True) for level, each in enumerate(g)]
    slopes = [sum(slopes)] * len(g) if joint else slopes
    return [slope * noise[f"v.{level}"] for level, slope in enumerate(slopes)], {}


def net(state, name, h, skip):
    """(output, what the way back needs) of a net with one hidden layer."""
    pre = h @ state[f"{name}.in.weight"].T + state[f"{name}.in.bias"]
    out = gelu(pre) @ state[f"{name}.out.weight"].T + state[f"{name}.out.bias"]
    return out + h * skip, pre


def dtp(pieces, state, noise, x, y, beta=1.0, sigma=0.1, skip=False):
    h = pieces.states(x)
    target = h[-1] - beta * pieces.top(h[-1], y)
    credit, grads = [h[-1] - target], {}
    for level in reversed(range(pieces.depth)):
        name = f"G.{level}"
        target = h[level] + net(state, name, target, skip)[0] - net(state, name, h[level + 1], skip)[0]
        credit.insert(0, h[level] - target)
        noisy = h[level] + sigma * np.sqrt((h[level] ** 2).mean(1, keepdims=True)) * noise[name]
        out = pieces.block(level, noisy)
        made, pre = net(state, name, out, skip)
        missed = (made - noisy) / noisy.size
        back = (missed @ state[f"{name}.out.weight"]) * gelu_slope(pre)
        grads |= {
            f"{name}.out.weight": missed.T @ gelu(pre),
            f"{name}.out.bias": missed.sum(0),
            f"{name}.in.weight": back.T @ out,
            f"{name}.in.bias": back.sum(0),
        }
    return credit, grads


def pc(pieces, state, noise, x, y, steps=20, rate=0.1, zil=False):
    h = pieces.states(x)
    now, depth, read = [s.copy() for s in h], pieces.depth, {}
    count = depth + 1 if zil else steps

    def apart(now):
        return [now[0] - h[0], *(now[k + 1] - pieces.block(k, now[k]) for k in range(depth))]

    for t in range(1, count + 1):
        off = apart(now)
        pulls = [*(pieces.back(k, now[k], off[k + 1]) for k in range(depth)), -pieces.top(now[-1], y)]
        now = [s - (1.0 if zil else rate) * (o - pull) for s, o, pull in zip(now, off, pulls, strict=True)]
        read |= {level: -off for level, off in enumerate(apart(now)) if (level == depth + 1 - t if zil else t == count)}
    return [read[level] for level in range(depth + 1)], {}


def state_bridge(pieces, state, noise, x, y, skip=False):
    h, n = pieces.states(x), len(x)
    w1, w2 = state["G.in.weight"], state["G.out.weight"]
    credit, grads = [], {name: np.zeros_like(t) for name, t in state.items()}
    for level in range(pieces.depth):
        pre = h[level] @ w1.T + state["G.level"][level]
        guess = gelu(pre) @ w2.T + state["G.out.bias"] + h[level] * skip
        g = pieces.top(guess, y)
        credit.append(((g @ w2) * gelu_slope(pre)) @ w1 + g * skip)
        missed = (guess - h[-1]) / (n * h[-1].shape[1])
        back = (missed @ w2) * gelu_slope(pre)
        grads["G.out.weight"] += missed.T @ gelu(pre)
        grads["G.out.bias"] += missed.sum(0)
        grads["G.in.weight"] += back.T @ h[level]
        grads["G.level"][level] += back.sum(0)
    return [*credit, pieces.top(h[-1], y)], grads


def credit_bridge(pieces, state, noise, x, y):
    h, n = pieces.states(x), len(x)
    w, out = state["V.in"], state["V.out"][y]
    pres = [s @ w.T + row for s, row in zip(h, state["V.level"], strict=True)]
    credit = [(gelu_slope(pre) * out) @ w for pre in pres]
    values = [(gelu(pre) * out).sum(1) for pre in pres]
    grads = {name: np.zeros_like(t) for name, t in state.items() if name.startswith("V")}

    def add(level, dpre, dw, dout):
        grads["V.in"] += dw
        grads["V.level"][level] += dpre.sum(0)
        np.add.at(grads["V.out"], y, dout)

    for level in range(pieces.depth):
        miss = (values[level] - values[level + 1])[:, None] / n
        for at, side in ((level, miss), (level + 1, -miss)):
            dpre = side * out * gelu_slope(pres[at])
            add(at, dpre, dpre.T @ h[at], side * gelu(pres[at]))
    off = (credit[-1] - pieces.top(h[-1], y)) / n
    z, along = pres[-1], off @ w.T
    curve = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (2 - z**2)
    dpre = along * out * curve
    add(-1, dpre, dpre.T @ h[-1] + (gelu_slope(z) * out).T @ off, along * gelu_slope(z))
    return credit, grads


CREDIT = {"fg-act": fg_act, "dtp": dtp, "pc": pc, "state-bridge": state_bridge, "credit-bridge": credit_bridge}
