"""Linear decoders of the states: what rules with a loss at every state read the label with."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from creditscope.blocks import FeedbackInit, Params, RuleState, Task

_WEIGHT, _BIAS = "weight", "bias"


def decoder_inits(task: Task, params: Params) -> dict[str, FeedbackInit]:
    """A linear layer on each of h_0..h_{L−1}, drawn as torch draws one: uniform on ±1/√width.

    Args:
        task: What is trained.
        params: Its parameters.
    """
    like = next(iter(params.values()))
    x = torch.zeros(1, *task.input_shape, device=like.device, dtype=task.input_dtype or like.dtype)
    per_token = task.forward(params, x).logits.ndim == 3
    found = {}
    for level, shape in enumerate(task.shapes[:-1]):
        width = shape[-1] if per_token else math.prod(shape)
        sd = 1 / math.sqrt(3 * width)
        found[f"decoder.{level}.{_WEIGHT}"] = FeedbackInit((task.outputs, width), sd, "uniform")
        found[f"decoder.{level}.{_BIAS}"] = FeedbackInit((task.outputs,), sd, "uniform")
    return found


def decoder_of(state: RuleState, level: int) -> dict[str, Tensor]:
    """One state's decoder, by the names that it has in the rule's state.

    Args:
        state: The rule's state.
        level: Which state.
    """
    return {name: state[name] for name in (f"decoder.{level}.{_WEIGHT}", f"decoder.{level}.{_BIAS}")}


def decoded(h: Tensor, decoder: Mapping[str, Tensor], axes: int) -> Tensor:
    """Logits of a state: of each token where the output has a token axis, else of the whole state.

    Args:
        h: The state, first axis samples.
        decoder: From ``decoder_of``.
        axes: Of the network's own logits.
    """
    weight, bias = decoder.values()
    return (h if axes == 3 else h.flatten(1)) @ weight.T + bias
