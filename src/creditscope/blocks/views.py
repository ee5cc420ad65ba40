"""Views: how a state of any shape becomes one vector per sample. The same view is taken of h, g and c."""

from torch import Tensor

from creditscope.errors import BadInput, did_you_mean

VIEWS = ("flat", "cls", "mean", "all")


def view_state(h: Tensor, view: str) -> Tensor:
    """One vector per sample of a state h.

    Args:
        h: State, first axis samples.
        view: ``flat`` or ``all``: everything flattened; ``cls``: the first token; ``mean``: the token mean.
    """
    if view in ("flat", "all"):
        return h.flatten(1)
    _want_tokens(h, view)
    return h[:, 0] if view == "cls" else h.mean(1)


def view_signal(g: Tensor, view: str) -> Tensor:
    """One vector per sample of a gradient or credit: as ``view_state``, but ``mean`` sums over tokens.

    Moving every token by v moves the token mean by v and the loss by ⟨Σ_t g_t, v⟩: the sum is the signal
    that belongs to the mean.

    Args:
        g: Gradient or credit, first axis samples.
        view: One of ``VIEWS``.
    """
    if view == "mean":
        _want_tokens(g, view)
        return g.sum(1)
    return view_state(g, view)


def _want_tokens(h: Tensor, view: str) -> None:
    if view not in VIEWS:
        raise BadInput(f"unknown view {view!r}; {did_you_mean(view, VIEWS)}")
    if h.ndim != 3:
        raise BadInput(
            f"view {view!r} wants states of shape (samples, tokens, width), got {tuple(h.shape)}; use 'flat'"
        )
