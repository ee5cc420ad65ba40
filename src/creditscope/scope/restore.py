"""Leave a user's model as it was: mode, randomness, parameters, buffers, attributes, gradients, compilation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from creditscope.errors import BadInput
from creditscope.probes.precision import full_precision, switched_off
from creditscope.scope.guard import Guard, RandomStates

_MEMBERS = ("_parameters", "_buffers", "_modules")


def plain_model(model: nn.Module) -> nn.Module:
    """The module itself, out of the wrapper that ``torch.compile`` puts around it; both share their parameters.

    Args:
        model: What the user passed.
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"wanted a torch.nn.Module as the model, got {type(model).__name__}; pass the module itself")
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise BadInput(f"wanted the model itself, got a {type(model).__name__} around it; pass model.module")
    inner = getattr(model, "_orig_mod", model)
    if not isinstance(inner, nn.Module):
        raise BadInput(f"the compiled model holds a {type(inner).__name__}, not a module; pass the module it came from")
    compiled = [name for name, module in inner.named_modules() if hasattr(module, "_orig_mod")]
    if compiled:
        raise BadInput(
            f"{compiled[0]} is compiled on its own, and hooks do not reach into it; compile the whole model instead, "
            "or pass the model as it was before torch.compile"
        )
    scripted = [
        name or type(inner).__name__ for name, m in inner.named_modules() if isinstance(m, torch.jit.ScriptModule)
    ]
    if scripted:
        raise BadInput(
            f"{scripted[0]} is a torch.jit module, and hooks do not reach into it; pass the model as it was before "
            "torch.jit.script or torch.jit.trace"
        )
    if not any(True for _ in inner.parameters()):
        raise BadInput(f"wanted a model with parameters, {type(inner).__name__} has none; pass the model you train")
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in inner.parameters()):
        raise BadInput("the model has lazy parameters that no input has shaped yet; run it once on a batch")
    if any(p.is_complex() for p in inner.parameters()):
        raise BadInput(
            "wanted real parameters, the model has complex ones, whose gradients have no one direction; write them as "
            "real and imaginary parts"
        )
    return inner


def device_of(model: nn.Module) -> torch.device:
    """The model's device; a model on several devices is refused.

    Args:
        model: The model.
    """
    devices = {p.device for p in model.parameters()}
    if len(devices) > 1:
        raise BadInput(
            f"wanted a model on one device, its parameters are on {', '.join(sorted(map(str, devices)))}; "
            "move it to one"
        )
    device = next(iter(devices))
    if device.type == "meta":
        raise BadInput("wanted a model with values, its parameters are on the meta device; load or initialise it")
    return device


@contextmanager
def restoring(model: nn.Module) -> Iterator[str]:
    """Evaluation mode inside; whatever happens, everything of the model is as before on the way out.

    Modules run as written, not compiled: hooks on submodules are invisible to a compiled call. TF32 and autocast are
    off inside, so that the dtype of the parameters is the dtype of the arithmetic. Memory that an operation of this
    thread is about to write into is copied first; a layer that draws even in evaluation mode draws from a generator
    of the audit, the same whenever it is measured.

    Args:
        model: The user's model.

    Returns:
        What of the user's settings is switched off.
    """
    modules = list(model.modules())
    # Some layers put new parameters, buffers, attributes or hooks in place of the old while they run.
    kept = [(module, dict(vars(module)), _containers(module)) for module in modules]
    params = [(p, p.data, p.requires_grad) for p in model.parameters()]
    device = device_of(model)
    states = RandomStates(device)
    guard = Guard([*(data for _, data, _ in params), *model.buffers(), *cached_tensors(model)])
    off = switched_off(device.type)
    try:
        for module in modules:
            vars(module).update(training=False, _compiled_call_impl=None)
        with spared_gradients(model), full_precision(), guard.watching():
            yield off
    finally:
        for module, attributes, containers in kept:
            vars(module).clear()
            vars(module).update(attributes)
            for name, held in containers.items():
                _refill(vars(module)[name], held)
        for p, data, trains in params:
            p.data = data
            p.requires_grad_(trains)
        guard.put_back()
        states.put_back()


def _containers(module: nn.Module) -> dict[str, Any]:
    """Copies of everything in a module that things can be added to: members, hooks, lists of its own."""
    return {name: held.copy() for name, held in vars(module).items() if isinstance(held, (dict, list, set))}


def _refill(container: Any, held: Any) -> None:
    container.clear()
    container.extend(held) if isinstance(container, list) else container.update(held)


def cached_tensors(model: nn.Module) -> list[Tensor]:
    """Tensors that the modules of a model keep as plain attributes.

    Args:
        model: The model.
    """
    held = [value for module in model.modules() for name, value in vars(module).items() if name not in _MEMBERS]
    return [t for t in tree_flatten(held)[0] if isinstance(t, Tensor)]


@contextmanager
def spared_gradients(model: nn.Module) -> Iterator[None]:
    """No ``.grad`` inside; the same tensors as before on the way out.

    Args:
        model: The user's model.
    """
    kept = [(p, p.grad) for p in model.parameters()]
    try:
        for p, _ in kept:
            p.grad = None
        yield
    finally:
        for p, grad in kept:
            p.grad = grad
