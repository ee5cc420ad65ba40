"""What rules ask of a model whose blocks they run one by one: a chain of states, and vectors where nets read them."""

import torch
from torch import Tensor

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
        outputs = (*seen.states[1:], seen.logits)
        # Every second part gets its own input, all others, the embedding among them, that of the other sample.
        halves = [[h if at % 2 == own else h.flip(0) for at, h in enumerate(seen.states)] for own in (0, 1)]
        made = [task.apart(params, dict(enumerate(inputs)), x[1:]) for inputs in halves]
        again = [(*made[at % 2].states[1:], made[at % 2].logits)[at] for at in range(len(outputs))]
    if any(_differ(*pair) for pair in zip(outputs, again, strict=True)):
        raise BadInput(
            f"{name} wants a chain, where each state is made from the one before alone; in this model something passes "
            f"the blocks by: choose other blocks, or use fa or dfa"
        )


def _differ(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape:
        return True
    return bool(((before - after).abs() > _TOLERANCE * before.abs().amax()).any())


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
