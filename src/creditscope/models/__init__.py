"""Plain modules that know nothing of credit rules.

Importing this package loads none of them: their names are enough to plan by.
"""

from typing import TYPE_CHECKING

from creditscope.registry import Registry

if TYPE_CHECKING:
    from torch import nn

MODELS = Registry(
    "model",
    "creditscope.models",
    {"resmlp": "creditscope.models.resmlp:ResMLP", "vit-mini": "creditscope.models.vit_mini:ViTMini"},
)


def build_model(
    name: str, shape: tuple[int, ...], classes: int, width: int, depth: int, terminal_ln: bool
) -> "nn.Module":
    """Build a model by name.

    Args:
        name: One of ``MODELS``.
        shape: Shape of one input sample.
        classes: Number of outputs.
        width: Width of the residual stream.
        depth: Number of blocks.
        terminal_ln: Whether a LayerNorm stands before the head.
    """
    model: nn.Module = MODELS.find(name)(shape, classes, width=width, depth=depth, terminal_ln=terminal_ln)
    return model
