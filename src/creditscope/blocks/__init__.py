"""Partition any nn.Module into blocks; observe its states, gradients and credit. Hooks exist only inside one call."""

from creditscope.blocks.feedback import FeedbackInit
from creditscope.blocks.identity import Identity, Proof, Reported
from creditscope.blocks.observe import Observation, observe
from creditscope.blocks.partition import Blocks, Params, Pass
from creditscope.blocks.rule import (
    CreditRule,
    FeedbackRule,
    Moment,
    Moves,
    NullKind,
    Redraw,
    RuleState,
    Step,
    published_index,
)
from creditscope.blocks.snapshot import Snapshot, are_finite
from creditscope.blocks.task import Batch, LossFn, Task, penalty_gradient
from creditscope.blocks.views import VIEWS, view_signal, view_state

__all__ = [
    "VIEWS",
    "Batch",
    "Blocks",
    "CreditRule",
    "FeedbackInit",
    "FeedbackRule",
    "Identity",
    "LossFn",
    "Moment",
    "Moves",
    "NullKind",
    "Observation",
    "Params",
    "Pass",
    "Proof",
    "Redraw",
    "Reported",
    "RuleState",
    "Snapshot",
    "Step",
    "Task",
    "are_finite",
    "observe",
    "penalty_gradient",
    "published_index",
    "view_signal",
    "view_state",
]
