"""Plain modules that know nothing of credit rules."""

from collections.abc import Callable

from torch import nn

from creditscope.errors import BadInput, did_you_mean
from creditscope.models.resmlp import ResMLP
from creditscope.models.vit_mini import ViTMini

MODELS: dict[str, Callable[..., nn.Module]] = {"resmlp": ResMLP, "vit-mini": ViTMini}


def build_model(
    name: str, shape: tuple[int, ...], classes: int, width: int, depth: int, terminal_ln: bool
) -> nn.Module:
    """Build one of our models by name.

    Args:
        name: ``resmlp`` or ``vit-mini``.
        shape: Shape of one input sample.
        classes: Number of outputs.
        width: Width of the stream.
        depth: Number of blocks.
        terminal_ln: Whether a LayerNorm stands before the head.
    """
    if name not in MODELS:
        raise BadInput(f"unknown model {name!r}; {did_you_mean(name, MODELS)}")
    if name == "vit-mini" and (len(shape) != 3 or shape[1] % 4 or shape[2] % 4):
        raise BadInput(
            f"vit-mini wants images whose sides are multiples of 4, got shape {shape}; use --set model=resmlp"
        )
    if name == "vit-mini" and width % 4:
        raise BadInput(f"vit-mini has 4 heads and wants a width that is a multiple of 4, got {width}")
    return MODELS[name](shape, classes, width=width, depth=depth, terminal_ln=terminal_ln)


__all__ = ["MODELS", "ResMLP", "ViTMini", "build_model"]
