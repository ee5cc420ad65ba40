"""Feedback alignment block by block: the published audit's FA."""

import math
from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, FeedbackInit, Identity, Params, Proof, RuleState, Task
from creditscope.errors import BadInput
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import BlockRule


@dataclass(frozen=True)
class BlockFeedback(BlockRule):
    """c_L = g_L exactly, c_l = c_{l+1}·M_l, M_l ~ N(0, 1/d) fixed (after Lillicrap et al. 2016)."""

    name = "fa-block"
    formula = "c_L = g_L; c_l = c_{l+1}·M_l with fixed random M_l"
    paper = "after Lillicrap et al. 2016; the FA of arXiv 2606.21126"
    injection = "exact gradient at h_L; a fixed random matrix M_l carries it from block to block"
    sketch = Sketch(text="exact at the last state, then one random matrix a block", route="chain", random=("block",))
    feedback_spec = FeedbackSpec(dist="normal", scale="1/sqrt(width)")
    identity = Identity(
        needs=("the exact gradient at the last state", "a fixed random matrix per block"),
        spares=("the weights of the blocks on the way back", "a backward pass through more than one block"),
        proofs=(Proof("exact at h_L alone", "test_which_states_are_exact_by_construction"),),
    )

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """M_0..M_{L−1}."""
        if len(set(task.shapes)) != 1 or len(task.shapes[0]) > 2:
            raise BadInput(
                f"fa-block wants vectors or tokens of one shape at every state, got {task.shapes}; "
                f"use fa or dfa for this model"
            )
        width = task.shapes[0][-1]
        return {f"M.{level}": FeedbackInit((width, width), 1 / math.sqrt(width)) for level in range(task.blocks.depth)}

    def signals(
        self, task: Task, params: Params, state: RuleState, error: Tensor, top: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """From the top down."""
        signals = [task.top_gradient(params, top, batch)]
        for level in reversed(range(task.blocks.depth)):
            signals.append(signals[-1] @ state[f"M.{level}"])
        return tuple(reversed(signals))

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact at h_L alone."""
        return (*(False,) * depth, True)
