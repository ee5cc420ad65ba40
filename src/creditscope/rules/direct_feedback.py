"""Direct feedback alignment: the output error reaches every block through its own fixed random matrix."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import Batch, FeedbackInit, Params, RuleState, Task
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import BlockRule

_EMBEDDING = "B.embedding"


@dataclass(frozen=True)
class DirectFeedback(BlockRule):
    """c_{l+1} = e·B_l and c_0 = e·B_0, B_l ~ N(0, 1/C) fixed (Nøkland 2016).

    Where h_0 and h_1 differ in shape, B_0 cannot serve both: c_0 then has a matrix of its own.
    """

    name = "dfa"
    formula = "c_{l+1} = e·B_l, c_0 = e·B_0 with fixed random B_l"
    paper = "Nøkland 2016"
    injection = "e·B_l at the output of block l; e·B_0 at the embedding; every token alike"
    sketch = Sketch(text="error times a random matrix, straight to each block", route="direct")
    feedback_spec = FeedbackSpec(dist="normal", scale="1/sqrt(classes)")

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """B_0..B_{L−1}, then the embedding's own if it needs one."""
        sd = 1 / math.sqrt(task.outputs)
        widths = {f"B.{level}": math.prod(_receiving(shape)) for level, shape in enumerate(task.shapes[1:])}
        if _receiving(task.shapes[0]) != _receiving(task.shapes[1]):
            widths[_EMBEDDING] = math.prod(_receiving(task.shapes[0]))
        return {name: FeedbackInit((task.outputs, width), sd) for name, width in widths.items()}

    def signals(
        self, task: Task, params: Params, state: RuleState, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """e·B_l, the same for every token of a sequence."""
        first = _EMBEDDING if _EMBEDDING in state else "B.0"
        carried = {first: task.shapes[0]}
        carried |= {f"B.{level}": shape for level, shape in enumerate(task.shapes[1:])}
        products = _products(error, {name: state[name] for name in carried})
        shaped = {name: _shaped(products[name], shape) for name, shape in carried.items()}
        return (shaped[first], *(shaped[f"B.{level}"] for level in range(task.blocks.depth)))


def _products(error: Tensor, matrices: dict[str, Tensor]) -> dict[str, Tensor]:
    """e·B for every matrix: those of one width go together."""
    found: dict[str, Tensor] = {}
    for width in {matrix.shape[1]: None for matrix in matrices.values()}:
        names = [name for name, matrix in matrices.items() if matrix.shape[1] == width]
        signals = error @ torch.stack([matrices[name] for name in names])
        found |= dict(zip(names, signals.unbind(), strict=True))
    return found


def _shaped(signal: Tensor, shape: tuple[int, ...]) -> Tensor:
    """One token for all of a token sequence, else the whole state."""
    return signal.reshape(len(signal), *([1] * (len(shape) == 2)), *_receiving(shape))


def _receiving(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The part of a state that gets its own feedback entries: one token of a token sequence, else everything."""
    return shape[1:] if len(shape) == 2 else shape
