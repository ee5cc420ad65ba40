"""The true gradient of a model whose own backward is another: the forward pass, differentiated as it stands.

Feedback alignment is often written into the model: a custom autograd function, a backward hook, a tensor hook, a
detached residual stream. Autograd then gives the method's signal: as a reference it would agree with itself.
"""

import inspect
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from creditscope.blocks import Blocks, Params, Pass
from creditscope.scope.inputs import Table, inputs_of, logits_of

_HOOKS = ("_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class TrueBlocks(Blocks):
    """The same partition; its backward is the derivative of its forward, whatever the model says of its own backward.

    Args:
        table: Named inputs, where the model takes several.
    """

    table: Table | None = None

    def forward(
        self,
        params: Params,
        x: Tensor,
        *,
        taps: Mapping[int, Tensor] | None = None,
        replace: Mapping[int, Tensor] | None = None,
        detach: bool = False,
        penalty: Tensor | None = None,
    ) -> Pass:
        """As ``Blocks.forward``.

        Args:
            params: Parameters and buffers by name.
            x: Inputs.
            taps: Added to state l as it goes on.
            replace: State l is replaced by this one.
            detach: Whether each state is detached as it goes on.
            penalty: λ of the branch penalty; None: none.
        """
        # A layer that counts its calls in a buffer: torch.func refuses to change what it did not make.
        buffers = {name: params.get(name, buffer).clone() for name, buffer in self.model.named_buffers()}
        full = {**params, **buffers}
        if detach:
            # A rule's own local pass: the detaching is ours, and so is the backward.
            return super().forward(full, x, taps=taps, replace=replace, detach=True, penalty=penalty)
        # A layer that works in place must not write into a state that is used again.
        fresh = None if replace is None else {level: h.clone() for level, h in replace.items()}
        with true_backward(self.model):
            return super().forward(full, x, taps=taps, replace=fresh, penalty=penalty)

    def run(self, params: Params, x: Tensor) -> Tensor:
        """The logits of the model itself with other parameters.

        Args:
            params: Parameters and buffers by name.
            x: Inputs.
        """
        dtype = next((p.dtype for p in params.values() if p.is_floating_point()), torch.float32)
        inputs = inputs_of(self.table, x, dtype)
        args, named = ((), inputs) if isinstance(inputs, dict) else ((inputs,), {})
        return logits_of(functional_call(self.model, dict(params), args, named))  # type: ignore[no-any-return]

    def tail(self, params: Params, level: int, h: Tensor, x: Tensor) -> Tensor:
        """As ``Blocks.tail``; a model of named inputs may read them again after the state (masks, lengths).

        Args:
            params: Parameters and buffers by name.
            level: Which state h is.
            h: The state, first axis samples; or several copies of each sample's, side by side.
            x: Inputs of these samples.
        """
        if self.table is None:
            return super().tail(params, level, h, x)
        return self.forward(params, x.repeat_interleave(len(h) // len(x)), replace={level: h}).logits

    def inputs(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        """What the model itself is given for these samples.

        Args:
            x: As a batch holds them.
        """
        return inputs_of(self.table, x, next(self.model.parameters()).dtype)


@contextmanager
def true_backward(model: nn.Module) -> Iterator[None]:
    """Inside, a forward pass is recorded as plain operations, without anything that would bend its backward.

    Custom autograd functions are run inline for the whole process: not while another thread trains.

    Args:
        model: The model about to run.
    """
    # Past a module's own __setattr__, which is slow and not needed for what is no parameter.
    kept = [(vars(module), {name: vars(module)[name] for name in _HOOKS}) for module in model.modules()]
    try:
        for attributes, _ in kept:
            attributes.update({name: OrderedDict() for name in _HOOKS})
        # The code, not the name: ``f = MyFunction.apply`` holds the method itself.
        _APPLY.__code__ = _Inlined.__dict__["apply"].__func__.__code__
        with _NoBending():
            yield
    finally:
        _APPLY.__code__ = _TORCHS_OWN.__code__
        for attributes, held in kept:
            attributes.update(held)


class _NoBending(TorchFunctionMode):
    """Tensor hooks are not registered and a detached tensor stays attached."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.detach:
            return args[0]
        if func is Tensor.register_hook:
            return _NoHandle()
        return func(*args, **(kwargs or {}))


class _NoHandle:
    """What ``register_hook`` returns inside."""

    def remove(self) -> None:
        """Nothing was registered."""


class _Context:
    """Takes whatever a function's forward stores for the backward that will not be called."""

    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Tensor) -> None: ...

    def mark_dirty(self, *tensors: Tensor) -> None: ...

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...


def inlined(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
    """What ``cls.apply`` does inside: the function's forward as plain operations; torch's own functions are left alone.

    Args:
        cls: The function.
        args: Its arguments.
        kwargs: Likewise.
    """
    if (inspect.getmodule(cls) or torch).__name__.split(".")[0] == "torch":
        return _TORCHS_OWN(cls, *args, **kwargs)
    if cls.setup_context is not Function.setup_context:
        return cls.forward(*args, **kwargs)
    context = _Context()
    context.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
    return cls.forward(context, *args, **kwargs)


class _Inlined:
    """Holds the code that stands in for ``Function.apply``; it runs among torch's names, and so imports ours."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        from creditscope.scope.true_backward import inlined

        # The code it replaces closes over its class, and so must this.
        _ = __class__  # type: ignore[name-defined]
        return inlined(cls, *args, **kwargs)  # type: ignore[arg-type]


_APPLY: Any = Function.__dict__["apply"].__func__
_TORCHS_OWN: Any = FunctionType(_APPLY.__code__, _APPLY.__globals__, closure=_APPLY.__closure__)
