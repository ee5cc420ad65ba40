"""Which linear maps of a model need a backward weight; a model where one cannot be swapped is refused."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from creditscope.blocks import Params, Task
from creditscope.blocks.partition import hooks
from creditscope.errors import BadInput

_MAPS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)
_OPAQUE = (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
# Autograd nodes of a product with a matrix or kernel, and those that only rearrange its operand.
_PRODUCTS = ("Addmm", "Mm", "Bmm", "Addbmm", "Baddbmm", "Mv", "Addmv", "Linear", "Convolution")
_REARRANGE = ("T", "Transpose", "View", "UnsafeView", "Permute", "Expand", "Unsqueeze", "Squeeze", "Clone", "Slice")


class LinearMap(NamedTuple):
    """A linear map that something trainable precedes.

    Args:
        name: Module path.
        weight: Its weight now.
        after_blocks: Whether it stands after the last block.
    """

    name: str
    weight: Tensor
    after_blocks: bool


def linear_maps(task: Task, params: Params) -> list[LinearMap]:
    """The linear maps that need a backward weight, in the order in which the model calls them.

    Runs the model once. A map that nothing trainable precedes needs none; a model with weights in a map that
    cannot be carried is refused, because a rule that silently skips one is another rule.

    Args:
        task: What is trained.
        params: Parameters, which give weights, device and dtype.
    """
    model = task.blocks.model
    like = next(iter(params.values()))
    called: dict[str, tuple[bool, bool]] = {}
    done = [False]

    def seen(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            called[name] = (bool(args[0].requires_grad), done[0])

        return hook

    def finish(*_: Any) -> None:
        done[0] = True

    live = {name: p.detach().requires_grad_() for name, p in params.items()}
    x = torch.zeros(2, *task.input_shape, dtype=task.input_dtype or like.dtype, device=like.device)
    with hooks() as handles, torch.enable_grad():
        for name, module in model.named_modules():
            if isinstance(module, _MAPS):
                handles.append(module.register_forward_pre_hook(seen(name)))
        handles.append(task.blocks.modules[-1].register_forward_hook(finish))
        logits = functional_call(model, {**task.buffers, **task.fixed, **live}, (x,))
    _refuse_opaque(model)
    _refuse_uncalled(model, called)
    _refuse_loose(logits, live, called)
    return [LinearMap(name, _weight(name, params), after) for name, (needed, after) in called.items() if needed]


def _refuse_opaque(model: nn.Module) -> None:
    """Modules that hold a map which is not one of ours."""
    for name, module in model.named_modules():
        if isinstance(module, _OPAQUE):
            raise BadInput(f"fa cannot carry {name!r} ({type(module).__name__}): rewrite it with plain nn.Linear maps")
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim > 1 and not isinstance(module, (*_MAPS, *_LOOKUPS)):
            raise BadInput(f"fa cannot carry {name!r} ({type(module).__name__}): rewrite it with nn.Linear or nn.Conv")


def _refuse_uncalled(model: nn.Module, called: dict[str, tuple[bool, bool]]) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _MAPS) and name not in called:
            raise BadInput(
                f"fa cannot carry {name!r}: the forward pass never calls this module (it is unused, or its weight is "
                f"used directly); call it as a module or remove it"
            )


def _refuse_loose(logits: Tensor, live: dict[str, Tensor], called: dict[str, tuple[bool, bool]]) -> None:
    """Parameters that multiply the residual stream outside a module that a carrier can wrap."""
    names = {id(p): name for name, p in live.items() if p.ndim > 1 and name.removesuffix(".weight") not in called}
    for node in _graph(logits.grad_fn):
        if _kind(node) not in _PRODUCTS:
            continue
        operands = [operand for operand, _ in node.next_functions if operand is not None]
        for operand in operands:
            name = names.get(id(_leaf(operand)))
            if name is not None and len(operands) > 1:
                raise BadInput(
                    f"fa cannot carry {name!r}: a matrix product uses it outside nn.Linear or nn.Conv; "
                    f"rewrite it with one of them"
                )


def _graph(root: Any) -> Iterator[Any]:
    """Every node of an autograd graph, once."""
    waiting, known = [root], {root}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        yield node
        new = {following for following, _ in node.next_functions} - known
        known |= new
        waiting += new


def _leaf(node: Any) -> Tensor | None:
    """The leaf that a node passes on unchanged but for its shape."""
    while _kind(node) in _REARRANGE:
        node = node.next_functions[0][0]
    variable: Tensor | None = getattr(node, "variable", None)
    return variable


def _kind(node: Any) -> str:
    return str(node.name()).partition("Backward")[0]


def _weight(name: str, params: Params) -> Tensor:
    weight = params.get(f"{name}.weight")
    if weight is None:
        raise BadInput(
            f"fa cannot carry {name!r}: its weight is tied to another module or computed from other parameters; "
            f"give it a weight of its own"
        )
    return weight
