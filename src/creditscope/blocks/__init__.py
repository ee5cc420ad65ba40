"""Cut any nn.Module into blocks; look at its states, gradients and credit. Hooks live only inside one call."""

from creditscope.blocks.observe import Observation, observe
from creditscope.blocks.partition import Blocks, Params, Pass
from creditscope.blocks.rule import Batch, Credit, CreditRule, Feedback, LossFn, Spread, Task, published_index
from creditscope.blocks.snapshot import Snapshot, are_finite
from creditscope.blocks.views import VIEWS, view_signal, view_state

__all__ = [
    "VIEWS",
    "Batch",
    "Blocks",
    "Credit",
    "CreditRule",
    "Feedback",
    "LossFn",
    "Observation",
    "Params",
    "Pass",
    "Snapshot",
    "Spread",
    "Task",
    "are_finite",
    "observe",
    "published_index",
    "view_signal",
    "view_state",
]
