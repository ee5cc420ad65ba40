"""GPT-mini in numpy, forward and backward, written out from the equations: no autograd anywhere."""

from dataclasses import dataclass

import numpy as np
from cases.by_hand import gelu, gelu_slope

EPS = 1e-5


@dataclass
class Kept:
    """What one block remembers of its forward pass."""

    norms: tuple
    heads: tuple
    mixed: np.ndarray
    inner: tuple
    hidden: tuple
    out: np.ndarray


def norm(h, p, name):
    mean, var = h.mean(-1, keepdims=True), h.var(-1, keepdims=True)
    rstd = 1 / np.sqrt(var + EPS)
    xhat = (h - mean) * rstd
    return xhat * p[f"{name}.weight"] + p[f"{name}.bias"], (xhat, rstd)


def norm_back(dy, kept, p, name, grads):
    xhat, rstd = kept
    grads[f"{name}.weight"], grads[f"{name}.bias"] = (dy * xhat).sum((0, 1)), dy.sum((0, 1))
    dx = dy * p[f"{name}.weight"]
    return rstd * (dx - dx.mean(-1, keepdims=True) - xhat * (dx * xhat).mean(-1, keepdims=True))


def linear(x, p, name):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def linear_back(dy, x, p, name, grads):
    grads[f"{name}.weight"], grads[f"{name}.bias"] = np.einsum("bto,bti->oi", dy, x), dy.sum((0, 1))
    return dy @ p[f"{name}.weight"]


def split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1)


def branch(p, level, h, heads):
    """f(h) = a + mlp(ln(h + a)), a = attention(ln(h)): no token sees those behind it."""
    q = f"blocks.{level}.branch"
    a_in, first = norm(h, p, f"{q}.attention_ln")
    query, key, value = (split(linear(a_in, p, f"{q}.attention.{name}"), heads) for name in ("query", "key", "value"))
    scores = np.einsum("bihd,bjhd->bhij", query, key) / np.sqrt(query.shape[-1])
    tokens = scores.shape[-1]
    weights = np.exp(np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("bhij,bjhd->bihd", weights, value).reshape(h.shape)
    attended = linear(mixed, p, f"{q}.attention.out")
    m_in, second = norm(h + attended, p, f"{q}.mlp_ln")
    pre = linear(m_in, p, f"{q}.mlp.0")
    out = attended + linear(gelu(pre), p, f"{q}.mlp.2")
    return Kept((first, second), (query, key, value, weights), mixed, (a_in, m_in), (pre, gelu(pre)), out)


def branch_back(p, level, kept, delta, grads):
    """Gradients of one branch for a signal at its output, and what leaves it at its input."""
    q = f"blocks.{level}.branch"
    (first, second), (query, key, value, weights), (a_in, m_in), (pre, post) = (
        kept.norms,
        kept.heads,
        kept.inner,
        kept.hidden,
    )
    dpre = linear_back(delta, post, p, f"{q}.mlp.2", grads) * gelu_slope(pre)
    dsum = norm_back(linear_back(dpre, m_in, p, f"{q}.mlp.0", grads), second, p, f"{q}.mlp_ln", grads)
    dmixed = split(linear_back(delta + dsum, kept.mixed, p, f"{q}.attention.out", grads), query.shape[2])
    dweights = np.einsum("bihd,bjhd->bhij", dmixed, value)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True)) / np.sqrt(query.shape[-1])
    back = {
        "query": np.einsum("bhij,bjhd->bihd", dscores, key),
        "key": np.einsum("bhij,bihd->bjhd", dscores, query),
        "value": np.einsum("bhij,bihd->bjhd", weights, dmixed),
    }
    dnormed = sum(
        linear_back(d.reshape(a_in.shape), a_in, p, f"{q}.attention.{name}", grads) for name, d in back.items()
    )
    return dsum + norm_back(dnormed, first, p, f"{q}.attention_ln", grads)


def run(p, x, heads):
    """(states, kept, logits)."""
    states, kept = [p["embed.weight"][x] + p["position"]], []
    while f"blocks.{len(kept)}.branch.mlp.0.weight" in p:
        kept.append(branch(p, len(kept), states[-1], heads))
        states.append(states[-1] + kept[-1].out)
    top, _ = norm(states[-1], p, "out_ln")
    return states, kept, linear(top, p, "head")


def error_of(logits, y):
    """ℓ, the mean over tokens of −log softmax, and e = ∂ℓ/∂logits = (softmax − onehot)/tokens."""
    z = np.exp(logits - logits.max(-1, keepdims=True))
    share = z / z.sum(-1, keepdims=True)
    chosen = np.take_along_axis(share, y[..., None], -1)[..., 0]
    return -np.log(chosen).mean(1), (share - np.eye(logits.shape[-1])[y]) / y.shape[1]


def backward(p, x, y, heads, matrices=None):
    """Gradients of the mean loss: of backprop, or of dfa with B_0..B_{L−1}. Also loss, error and signals at the states.

    Args:
        p: Parameters by name, numpy.
        x: Characters.
        y: The next ones.
        heads: Attention heads.
        matrices: dfa's; None: backprop.
    """
    states, kept, logits = run(p, x, heads)
    loss, error = error_of(logits, y)
    grads = {}
    top, remembered = norm(states[-1], p, "out_ln")
    signal = norm_back(linear_back(error, top, p, "head", grads), remembered, p, "out_ln", grads)
    depth = len(kept)
    signals = [signal] if matrices is None else [error @ matrices[max(at - 1, 0)] for at in range(depth + 1)]
    for level in reversed(range(depth)):
        arriving = signals[0] if matrices is None else signals[level + 1]
        below = branch_back(p, level, kept[level], arriving, grads)
        if matrices is None:
            signals.insert(0, arriving + below)
    grads["position"] = signals[0].sum(0, keepdims=True)
    grads["embed.weight"] = np.zeros_like(p["embed.weight"])
    np.add.at(grads["embed.weight"], x, signals[0])
    return {name: g / len(x) for name, g in grads.items()}, loss, error, signals
