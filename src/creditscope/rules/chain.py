"""What rules ask of a model whose blocks they run one by one: a chain of states, and vectors where nets read them."""

import torch

from creditscope.blocks import Params, Task
from creditscope.errors import BadInput

_TOLERANCE = 1e-3


def require_chain(name: str, task: Task, params: Params) -> None:
    """Refuse a model in which a state, or the output, is made from more than the state before it.

    Args:
        name: The rule's.
        task: What is trained.
        params: Parameters at initialisation.
    """
    like = next(iter(params.values()))
    steps = torch.arange(2, device=like.device).reshape(2, *[1] * len(task.input_shape))
    x = steps.expand(2, *task.input_shape).to(task.input_dtype or like.dtype)
    with torch.no_grad():
        seen = task.forward(params, x)
        # The embedding is given the other sample: whatever passes the blocks by is then another.
        again = task.apart(params, seen.states, x[1:])
        pairs = [*zip(seen.states[1:], again.states[1:], strict=True), (seen.logits, again.logits)]
    if any(h.shape != k.shape or bool(((h - k).abs() > _TOLERANCE * h.abs().amax()).any()) for h, k in pairs):
        raise BadInput(
            f"{name} wants a chain, where each state is made from the one before alone; in this model something passes "
            f"the blocks by: choose other blocks, or use fa or dfa"
        )


def one_width(name: str, task: Task) -> int:
    """The width of the states, which must be vectors of one width.

    Args:
        name: The rule's.
        task: What is trained.
    """
    shapes = set(task.shapes)
    if len(shapes) != 1 or len(task.shapes[0]) != 1:
        raise BadInput(
            f"{name} wants a vector of one width at every state, got {', '.join(map(str, sorted(shapes)))}; use fa or "
            f"dfa for this model"
        )
    return task.shapes[0][0]
