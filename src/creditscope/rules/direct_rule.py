"""Direct rules: something of the output goes straight to every block through the block's own matrix."""

import math
from abc import abstractmethod

import torch
from torch import Tensor

from creditscope.blocks import Batch, FeedbackInit, Params, RuleState, Task
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import BlockRule

EMBEDDING = "B.embedding"


class DirectRule(BlockRule):
    """c_{l+1} = s·B_l and c_0 = s·B_0, B_l ~ N(0, 1/C); a subclass says what s is.

    Where h_0 and h_1 differ in shape, B_0 cannot serve both: c_0 then has a matrix of its own. Where the whole sequence
    has one output every token gets the same; where each token has its own, each gets what belongs to it.
    """

    sketch = Sketch(text="error times a random matrix, straight to each block", route="direct")

    @property
    def feedback_spec(self) -> FeedbackSpec:
        """N(0, 1/C)."""
        return FeedbackSpec(dist="normal", scale="1/sqrt(classes)")

    @abstractmethod
    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """s, of the shape of e.

        Args:
            error: e per sample.
            batch: The batch.
        """

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """B_0..B_{L−1}, then the embedding's own if it needs one."""
        sd = 1 / math.sqrt(task.outputs)
        widths = {f"B.{level}": math.prod(receiving(shape)) for level, shape in enumerate(task.shapes[1:])}
        if receiving(task.shapes[0]) != receiving(task.shapes[1]):
            widths[EMBEDDING] = math.prod(receiving(task.shapes[0]))
        return {name: FeedbackInit((task.outputs, width), sd) for name, width in widths.items()}

    def signals(
        self, task: Task, params: Params, state: RuleState, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """s·B_l."""
        first = EMBEDDING if EMBEDDING in state else "B.0"
        carried = {first: task.shapes[0]}
        carried |= {f"B.{level}": shape for level, shape in enumerate(task.shapes[1:])}
        products = _products(self.sent(error, batch), {name: state[name] for name in carried})
        shaped = {name: _shaped(products[name], shape) for name, shape in carried.items()}
        return (shaped[first], *(shaped[f"B.{level}"] for level in range(task.blocks.depth)))


def _products(sent: Tensor, matrices: dict[str, Tensor]) -> dict[str, Tensor]:
    """s·B for every matrix: those of one width go together."""
    found: dict[str, Tensor] = {}
    for width in {matrix.shape[1]: None for matrix in matrices.values()}:
        names = [name for name, matrix in matrices.items() if matrix.shape[1] == width]
        stacked = torch.stack([matrices[name] for name in names])
        signals = sent @ (stacked if sent.ndim == 2 else stacked.unsqueeze(1))
        found |= dict(zip(names, signals.unbind(), strict=True))
    return found


def _shaped(signal: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A sequence's own signals, one token for all of it, or the whole state."""
    if signal.ndim == 3:
        return signal
    return signal.reshape(len(signal), *([1] * (len(shape) == 2)), *receiving(shape))


def receiving(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The part of a state that gets its own feedback entries: one token of a token sequence, else everything.

    Args:
        shape: Of one sample's state.
    """
    return shape[1:] if len(shape) == 2 else shape
