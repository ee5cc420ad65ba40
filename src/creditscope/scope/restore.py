"""Leave a user's model as it was: mode, randomness, parameters, buffers, attributes, gradients, compilation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from creditscope.errors import BadInput
from creditscope.probes.precision import full_precision, switched_off


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
    if not any(True for _ in inner.parameters()):
        raise BadInput(f"wanted a model with parameters, {type(inner).__name__} has none; pass the model you train")
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in inner.parameters()):
        raise BadInput("the model has lazy parameters that no input has shaped yet; run it once on a batch")
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
    off inside, so that the dtype of the parameters is the dtype of the arithmetic.

    Args:
        model: The user's model.

    Returns:
        What of the user's settings is switched off.
    """
    modules = list(model.modules())
    # Some layers put new parameters, buffers or attributes in place of the old while they run.
    kept = [(module, dict(vars(module)), _members(module)) for module in modules]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    device = device_of(model)
    off = switched_off(device.type)
    try:
        for module in modules:
            vars(module).update(training=False, _compiled_call_impl=None)
        with (
            spared_gradients(model),
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            full_precision(),
        ):
            # A layer that draws even in evaluation mode draws the same whenever it is measured.
            torch.default_generator.manual_seed(0)
            if device.type == "cuda":
                torch.cuda.default_generators[device.index].manual_seed(0)
            yield off
    finally:
        for module, attributes, members in kept:
            vars(module).clear()
            vars(module).update(attributes)
            for name, held in members.items():
                vars(module)[name].clear()
                vars(module)[name].update(held)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _members(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {name: dict(vars(module)[name]) for name in ("_parameters", "_buffers", "_modules")}


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
