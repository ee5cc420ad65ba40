"""Plain modules that know nothing of credit rules.

Importing this package loads none of them: their names are enough to plan by.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from creditscope.errors import BadInput, did_you_mean, setting
from creditscope.records import DataSpec
from creditscope.records.method import Option, like_default
from creditscope.registry import Registry

if TYPE_CHECKING:
    from torch import nn

MODELS = Registry(
    "model",
    "creditscope.models",
    {
        "resmlp": "creditscope.models.resmlp:ResMLP",
        "mlp": "creditscope.models.mlp:MLP",
        "vit-mini": "creditscope.models.vit_mini:ViTMini",
        "gpt-mini": "creditscope.models.gpt_mini:GPTMini",
        "resnet": "creditscope.models.resnet:ResNet",
    },
)
_COMMON = ("shape", "classes", "width", "depth", "terminal_ln")


def build_model(
    model: str | Callable[..., "nn.Module"],
    shape: tuple[int, ...],
    classes: int,
    width: int,
    depth: int,
    terminal_ln: bool,
    options: Mapping[str, Option] | None = None,
) -> "nn.Module":
    """Build a model.

    Args:
        model: One of ``MODELS``, or what is called as they are.
        shape: Shape of one input sample.
        classes: Number of outputs.
        width: Width of the residual stream.
        depth: Number of blocks.
        terminal_ln: Whether a LayerNorm stands before the head.
        options: What else it is told; the rest is at its default.
    """
    build = MODELS.find(model)
    given = _typed(model, options or {})
    made: nn.Module = build(shape, classes, width=width, depth=depth, terminal_ln=terminal_ln, **given)
    return made


def refuse_data(model: str | Callable[..., "nn.Module"], data: DataSpec) -> None:
    """Refuse a model that cannot read a data set: one for characters reads text, and every other no text.

    Args:
        model: One of ``MODELS``, or what is called as they are.
        data: The data set.
    """
    if isinstance(model, str) and model not in MODELS.names():
        return  # of a user's own model nothing is known
    reads_tokens = getattr(MODELS.find(model), "reads_tokens", False)
    if reads_tokens and data.tokens is None:
        why = f"{model} reads text, and {data.name!r} is none; choose king-james or a .txt file of your own"
    elif isinstance(model, str) and not reads_tokens and data.tokens is not None:
        why = f"{model} reads images or vectors, and {data.name!r} is text; choose gpt-mini"
    else:
        return
    raise BadInput(setting("model", str(model)), f": {why}", why=why)


def options_of(model: str | Callable[..., "nn.Module"]) -> dict[str, Option]:
    """What a model can be told besides its shape, with the defaults.

    Args:
        model: One of ``MODELS``, or what is called as they are.
    """
    parameters: dict[str, Any] = {
        name: p.default for name, p in inspect.signature(MODELS.find(model)).parameters.items() if name not in _COMMON
    }
    return {name: value for name, value in parameters.items() if isinstance(value, (bool, int, float, str))}


def full_options(model: str, options: Mapping[str, Option]) -> dict[str, Option]:
    """Options in the types of their defaults, those equal to their defaults left out.

    Args:
        model: One of ``MODELS``.
        options: As read.
    """
    defaults = options_of(model)
    return {name: value for name, value in _typed(model, options).items() if value != defaults[name]}


def _typed(model: str | Callable[..., "nn.Module"], options: Mapping[str, Option]) -> dict[str, Any]:
    defaults = options_of(model)
    for name in options:
        if name not in defaults:
            known = did_you_mean(name, defaults) if defaults else "it has none"
            called = model if isinstance(model, str) else getattr(model, "__name__", "model")
            why = f"{called} has no such option; {known}"
            raise BadInput(setting(f"model.{name}"), f": {why}", why=why)
    return {name: like_default(defaults[name], value, f"model.{name}") for name, value in options.items()}
