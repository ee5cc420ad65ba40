"""Feedback alignment block by block: the published audit's FA."""

import math
from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, Feedback, Params, Spread, Task
from creditscope.errors import BadInput
from creditscope.records import FeedbackSpec
from creditscope.rules.block_rule import BlockRule, top_gradient


@dataclass(frozen=True)
class BlockFeedback(BlockRule):
    """c_L = g_L exactly, c_l = c_{l+1}·M_l, M_l ~ N(0, 1/d) fixed (after Lillicrap et al. 2016)."""

    @property
    def injection(self) -> str:
        """Where the credit enters."""
        return "exact gradient at h_L; a fixed random matrix M_l carries it from block to block"

    @property
    def feedback_spec(self) -> FeedbackSpec:
        """L square matrices."""
        return FeedbackSpec(dist="normal", scale="1/sqrt(width)")

    def spreads(self, task: Task, params: Params) -> dict[str, Spread]:
        """M_0..M_{L−1}."""
        if len(set(task.shapes)) != 1 or len(task.shapes[0]) > 2:
            raise BadInput(
                f"fa-block wants vectors or tokens of one shape at every state, got {task.shapes}; "
                f"use fa or dfa for this model"
            )
        width = task.shapes[0][-1]
        return {f"M.{level}": Spread((width, width), 1 / math.sqrt(width)) for level in range(task.blocks.depth)}

    def signals(
        self, task: Task, params: Params, feedback: Feedback, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """From the top down."""
        signals = [top_gradient(task, params, top, batch)]
        for level in reversed(range(task.blocks.depth)):
            signals.append(signals[-1] @ feedback[f"M.{level}"])
        return tuple(reversed(signals))

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact at h_L alone."""
        return (*(False,) * depth, True)
