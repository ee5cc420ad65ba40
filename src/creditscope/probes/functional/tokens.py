"""Token sequences: tokens that cannot reach the loss, and moving a state so that its view moves."""

import torch
from torch import Tensor


def live_tokens(g: Tensor) -> Tensor:
    """Per token, whether its reference is not zero for every sample; where no token is live, all count as live.

    No value decides a branch, so it can be mapped over runs.

    Args:
        g: Reference of a token sequence, shape (n, tokens, d).
    """
    live = (g != 0).any(dim=2).any(dim=0)
    return live | ~live.any()


def keep_live(signal: Tensor, g: Tensor) -> Tensor:
    """The signal with zeros at every token whose reference is zero for all samples.

    A zero entry adds neither to an inner product nor to a norm: those tokens are left out of every cosine. States
    that are no token sequence, and states where no token is live, come back as they are.

    Args:
        signal: Credit, shape (n, tokens, d) for a token sequence.
        g: Reference of the same state.
    """
    if g.ndim != 3:
        return signal
    live = live_tokens(g)
    if bool(live.all()):
        return signal
    return signal * live.to(signal.dtype).unsqueeze(-1)


def lift(vectors: Tensor, shape: tuple[int, ...], view: str) -> Tensor:
    """The change of a state that moves its view by the given vectors.

    ``flat`` and ``all`` move every entry, ``cls`` the first token alone, ``mean`` every token by the same vector.

    Args:
        vectors: Shape (n, d) in the view.
        shape: Shape of one sample's state.
        view: One of ``VIEWS``.
    """
    if view == "mean":
        return vectors.unsqueeze(1).expand(-1, *shape)
    if view == "cls":
        state = torch.zeros(len(vectors), *shape, dtype=vectors.dtype, device=vectors.device)
        state[:, 0] = vectors
        return state
    return vectors.reshape(-1, *shape)
