"""Every rule's backward pass through an MLP without skips, in numpy from the equations."""

import numpy as np
from cases.by_hand import layer_norm, layer_norm_back, over_rms, softmax_error

SLOPES = {
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
    "tanh": (np.tanh, lambda z: 1 / np.cosh(z) ** 2),
}


def backward(method, p, feedback, x, y, penalty=0.0, terminal_ln=True, activation="relu", given=None):
    """As of a ResMLP: gradients of the mean, credit c_0..c_L per sample, logits."""
    act, slope = SLOPES[activation]
    depth = sum(name.startswith("blocks.") and name.endswith("weight") for name in p)
    names = ["embed", *(f"blocks.{level}.0" for level in range(depth))]
    into, pre = [x], []
    for name in names:
        pre.append(into[-1] @ p[f"{name}.weight"].T + p[f"{name}.bias"])
        into.append(act(pre[-1]))
    states, top, n = into[1:], into[-1], len(x)
    if terminal_ln:
        top, xhat, rstd = layer_norm(top, p["out_ln.weight"], p["out_ln.bias"])
    logits = top @ p["head.weight"].T + p["head.bias"]
    e = softmax_error(logits, y)
    grads = {"head.weight": e.T @ top / n, "head.bias": e.sum(0) / n}
    at_top = e @ (feedback["B.head"] if method == "fa" else p["head.weight"])
    if terminal_ln:
        at_top, gain, shift = layer_norm_back(at_top, xhat, rstd, p["out_ln.weight"])
        grads |= {"out_ln.weight": gain / n, "out_ln.bias": shift / n}

    credit, extra = [None] * (depth + 1), [np.zeros_like(h) for h in states]
    credit[depth] = at_top
    for level in reversed(range(depth)):
        if method in ("bp", "fa"):
            back = p[f"{names[level + 1]}.weight"] if method == "bp" else feedback[f"B.{names[level + 1]}"]
            credit[level] = (credit[level + 1] * slope(pre[level + 1])) @ back
        elif method == "fa-block":
            credit[level] = credit[level + 1] @ feedback[f"M.{level}"]
    if given is not None:
        credit = [over_rms(c) for c in given] if method == "dfa-rms" else list(given)
    elif method.startswith("dfa"):
        sent = [e @ feedback[f"B.{level}"] for level in (0, *range(depth))]
        credit = [over_rms(c) for c in sent] if method == "dfa-rms" else sent
    # The branch is the whole output: the penalty pulls each block's output to zero.
    for level in reversed(range(depth)):
        extra[level + 1] = extra[level + 1] + 2 * penalty * states[level + 1]
        if method == "bp":
            extra[level] = (extra[level + 1] * slope(pre[level + 1])) @ p[f"{names[level + 1]}.weight"]
    for level, name in enumerate(names):
        delta = (credit[level] + extra[level]) * slope(pre[level]) / n
        grads |= {f"{name}.weight": delta.T @ into[level], f"{name}.bias": delta.sum(0)}
    return grads, credit, logits
