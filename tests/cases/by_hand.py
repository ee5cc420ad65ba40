"""Every rule's backward pass through a ResMLP, written out in numpy from the equations: no autograd anywhere."""

from dataclasses import dataclass

import numpy as np
from scipy.special import erf

EPS = 1e-5
RMS_EPS = 1e-6


@dataclass
class Branch:
    """What one branch remembers of its forward pass."""

    xhat: np.ndarray
    rstd: np.ndarray
    normed: np.ndarray
    pre: np.ndarray
    post: np.ndarray
    out: np.ndarray


def layer_norm(h, gain, shift):
    mean = h.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(((h - mean) ** 2).mean(1, keepdims=True) + EPS)
    xhat = (h - mean) * rstd
    return xhat * gain + shift, xhat, rstd


def layer_norm_back(dy, xhat, rstd, gain):
    """(∂/∂h, ∂/∂gain, ∂/∂shift)."""
    dxhat = dy * gain
    along = (dxhat * xhat).mean(1, keepdims=True)
    dh = rstd * (dxhat - dxhat.mean(1, keepdims=True) - xhat * along)
    return dh, (dy * xhat).sum(0), dy.sum(0)


def gelu(z):
    return z * (1 + erf(z / np.sqrt(2))) / 2


def gelu_slope(z):
    return (1 + erf(z / np.sqrt(2))) / 2 + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def branch_forward(p, level, h):
    q = f"blocks.{level}.branch"
    normed, xhat, rstd = layer_norm(h, p[f"{q}.0.weight"], p[f"{q}.0.bias"])
    pre = normed @ p[f"{q}.1.weight"].T + p[f"{q}.1.bias"]
    post = gelu(pre)
    return Branch(xhat, rstd, normed, pre, post, post @ p[f"{q}.3.weight"].T + p[f"{q}.3.bias"])


def branch_back(p, level, kept, delta, back1, back2):
    """Gradients of one block for a signal at its branch output, and what leaves the branch at its input."""
    q = f"blocks.{level}.branch"
    grads = {f"{q}.3.weight": delta.T @ kept.post, f"{q}.3.bias": delta.sum(0)}
    dpre = (delta @ back2) * gelu_slope(kept.pre)
    grads |= {f"{q}.1.weight": dpre.T @ kept.normed, f"{q}.1.bias": dpre.sum(0)}
    dh, grads[f"{q}.0.weight"], grads[f"{q}.0.bias"] = layer_norm_back(
        dpre @ back1, kept.xhat, kept.rstd, p[f"{q}.0.weight"]
    )
    return grads, dh


def softmax_error(logits, y):
    z = np.exp(logits - logits.max(1, keepdims=True))
    e = z / z.sum(1, keepdims=True)
    e[np.arange(len(y)), y] -= 1
    return e


def over_rms(c):
    return c / (np.sqrt((c**2).mean(1, keepdims=True)) + RMS_EPS)


def backward(method, p, feedback, x, y, penalty=0.0, terminal_ln=True, sent=None, given=None):
    """One rule on one batch.

    Args:
        method: ``bp``, ``fa``, ``fa-exact-head``, ``fa-block``, ``dfa`` or ``dfa-rms``.
        p: Parameters by name, numpy.
        feedback: The rule's matrices by name, numpy.
        x: Inputs, already flat.
        y: Labels.
        penalty: λ.
        terminal_ln: Whether out_ln stands before the head.
        sent: Of a direct rule, what goes through the matrices, from (e, y); None: e.
        given: The credit c_0..c_L of a block rule, found elsewhere; ``method`` is then ``dfa`` or ``dfa-rms``.

    Returns:
        Gradients of the mean over the batch, credit c_0..c_L per sample, logits.
    """
    depth = sum(name.endswith("branch.3.weight") for name in p)
    states = [x @ p["embed.weight"].T + p["embed.bias"]]
    branches = []
    for level in range(depth):
        branches.append(branch_forward(p, level, states[-1]))
        states.append(states[-1] + branches[-1].out)
    top = states[-1]
    if terminal_ln:
        top, xhat, rstd = layer_norm(top, p["out_ln.weight"], p["out_ln.bias"])
    logits = top @ p["head.weight"].T + p["head.bias"]
    e = softmax_error(logits, y)
    n = len(x)

    grads = {"head.weight": e.T @ top / n, "head.bias": e.sum(0) / n}
    at_top = e @ (feedback["B.head"] if method == "fa" else p["head.weight"])
    if terminal_ln:
        at_top, gain, shift = layer_norm_back(at_top, xhat, rstd, p["out_ln.weight"])
        grads |= {"out_ln.weight": gain / n, "out_ln.bias": shift / n}

    transports = method in ("bp", "fa", "fa-exact-head")
    if transports:
        credit = [at_top]
    elif method == "fa-block":
        credit = [at_top]
        for level in reversed(range(depth)):
            credit.insert(0, credit[0] @ feedback[f"M.{level}"])
    else:
        s = e if sent is None else sent(e, y)
        signals = [] if given is not None else [s @ feedback[f"B.{level}"] for level in range(depth)]
        if method == "dfa-rms":
            signals = [over_rms(s) for s in signals]
        credit = [*signals[:1], *signals]
    if given is not None:
        credit = [over_rms(c) for c in given] if method == "dfa-rms" else list(given)

    # BP's penalty is part of the loss: what it sends down the stream goes on to every block below.
    from_penalty = np.zeros_like(at_top)
    for level in reversed(range(depth)):
        q = f"blocks.{level}.branch"
        kind = "weight" if not method.startswith("fa") or method == "fa-block" else "feedback"
        back1, back2 = (p[f"{q}.{i}.weight"] if kind == "weight" else feedback[f"B.{q}.{i}"] for i in (1, 3))
        pull = 2 * penalty * branches[level].out
        if transports:
            of_task, down = branch_back(p, level, branches[level], credit[0], back1, back2)
            credit.insert(0, credit[0] + down)
            of_penalty, down = branch_back(p, level, branches[level], from_penalty + pull, back1, back2)
            if method == "bp":
                from_penalty = from_penalty + down
            block = {name: of_task[name] + of_penalty[name] for name in of_task}
        else:
            block, _ = branch_back(p, level, branches[level], credit[level + 1] + pull, back1, back2)
        grads |= {name: grad / n for name, grad in block.items()}
    at_embedding = credit[0] + from_penalty
    grads |= {"embed.weight": at_embedding.T @ x / n, "embed.bias": at_embedding.sum(0) / n}
    return grads, credit, logits
