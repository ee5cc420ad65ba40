"""Direct feedback alignment: the output error reaches every block through its own fixed random matrix."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import Batch, Feedback, Params, Spread, Task
from creditscope.records import FeedbackSpec
from creditscope.records.method import CreditNorm
from creditscope.rules.block_rule import BlockRule

RMS_EPS = 1e-6
_EMBEDDING = "B.embedding"


@dataclass(frozen=True)
class DirectFeedback(BlockRule):
    """c_{l+1} = e·B_l and c_0 = e·B_0, B_l ~ N(0, 1/C) fixed (Nøkland 2016).

    Where h_0 and h_1 differ in shape, B_0 cannot serve both: c_0 then has a matrix of its own.

    Args:
        credit_norm: ``rms`` divides each sample's credit by (its root mean square + 1e-6): the published audit's DFA.
    """

    credit_norm: CreditNorm = "none"

    @property
    def injection(self) -> str:
        """Where the credit enters."""
        scale = ", divided by its RMS per sample" if self.credit_norm == "rms" else ""
        return f"e·B_l at the output of block l{scale}; e·B_0 at the embedding; every token alike"

    @property
    def feedback_spec(self) -> FeedbackSpec:
        """L matrices of C rows."""
        return FeedbackSpec(dist="normal", scale="1/sqrt(classes)")

    def spreads(self, task: Task, params: Params) -> dict[str, Spread]:
        """B_0..B_{L−1}, then the embedding's own if it needs one."""
        sd = 1 / math.sqrt(task.outputs)
        widths = {f"B.{level}": math.prod(_receiving(shape)) for level, shape in enumerate(task.shapes[1:])}
        if _receiving(task.shapes[0]) != _receiving(task.shapes[1]):
            widths[_EMBEDDING] = math.prod(_receiving(task.shapes[0]))
        return {name: Spread((task.outputs, width), sd) for name, width in widths.items()}

    def signals(
        self, task: Task, params: Params, feedback: Feedback, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """e·B_l, handed to every token of a token stream."""
        first = _EMBEDDING if _EMBEDDING in feedback else "B.0"
        names = (first, *(f"B.{level}" for level in range(task.blocks.depth)))
        carried = self._carry(error, feedback)
        return tuple(_hand_out(carried[name], shape) for name, shape in zip(names, task.shapes, strict=True))

    def _carry(self, error: Tensor, feedback: Feedback) -> dict[str, Tensor]:
        """e·B for every matrix, scaled: those of one width go together."""
        carried: dict[str, Tensor] = {}
        for width in {matrix.shape[1] for matrix in feedback.values()}:
            names = [name for name, matrix in feedback.items() if matrix.shape[1] == width]
            signals = error @ torch.stack([feedback[name] for name in names])
            if self.credit_norm == "rms":
                signals = signals / (signals.square().mean(2, keepdim=True).sqrt() + RMS_EPS)
            carried |= dict(zip(names, signals.unbind(), strict=True))
        return carried

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact nowhere."""
        return (False,) * (depth + 1)


def _hand_out(signal: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What arrives at a state of this shape."""
    signal = signal.reshape(len(signal), *([1] * (len(shape) == 2)), *_receiving(shape))
    return signal.expand(len(signal), *shape)


def _receiving(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The part of a state that gets its own feedback entries: one token of a token stream, else everything."""
    return shape[1:] if len(shape) == 2 else shape
