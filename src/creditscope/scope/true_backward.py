"""The true gradient of a model whose own backward is another: the forward pass, differentiated as it stands.

Feedback alignment is often written into the model: a custom autograd function, a backward hook, a tensor hook, a
detached residual stream. Autograd then gives the method's signal: as a reference it would agree with itself.

The model runs as it is written. Below its own graph, where every operation of this thread passes in its plainest form,
each one is done on a shadow of the tensor that it was asked for, and the shadows remember how they came about. What a
custom function, ``detach``, ``.data`` or ``no_grad`` hides is above that level, so nothing of it has to be replaced:
another thread that trains with the same classes notices nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import enable_reentrant_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten
from torch.utils.weak import WeakTensorKeyDictionary

from creditscope.blocks import Blocks, Params, Pass
from creditscope.scope.inputs import Inputs, Table, call, inputs_of

_DETACHED = torch.ops.aten.detach.default
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_tape: ContextVar["Shadows | None"] = ContextVar("tape", default=None)


class Shadows(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every operation of this thread is done on shadows, which are recorded whatever the code says of its backward.

    ``bytes`` says how much new memory the operations asked for.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self._shadows = WeakTensorKeyDictionary()

    def stand_for(self, tensor: Tensor, shadow: Tensor) -> Tensor:
        """Say what is done in the place of a tensor.

        Args:
            tensor: As the code sees it.
            shadow: Of the same values.
        """
        self._shadows[tensor] = shadow
        return tensor

    def of(self, tensor: Tensor) -> Tensor:
        """The shadow of a tensor; one that came from elsewhere is a constant.

        Args:
            tensor: As the code sees it.
        """
        found = self._shadows.get(tensor)  # type: ignore[no-untyped-call]
        if found is None:
            with torch.inference_mode(False):
                found = tensor.data
            self._shadows[tensor] = found
        return found  # type: ignore[no-any-return]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = (args, kwargs or {})
        own_args, own_kwargs = tree_map_only(Tensor, self.of, given)
        with (
            enable_reentrant_dispatch(),
            _others(),
            _nothing_packed(),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            # A tensor that was cut off is the same tensor.
            out = own_args[0].view_as(own_args[0]) if func is _DETACHED else func(*own_args, **own_kwargs)
            written = {
                id(own): seen for own, seen in zip(_tensors((own_args, own_kwargs)), _tensors(given), strict=True)
            }
            return tree_map_only(Tensor, lambda t: self._plain(t, written if is_written(func) else {}), out)

    def _plain(self, shadow: Tensor, written: dict[int, Tensor]) -> Tensor:
        if not shadow._is_view():
            self.bytes += shadow.nbytes
        # The same memory, and a version of its own: a write in place is counted once for each of the two graphs.
        return written[id(shadow)] if id(shadow) in written else self.stand_for(shadow.data, shadow)


def _others() -> AbstractContextManager[Any]:
    """Modes further out see what is done on shadows; where there is none, torch must not look for one."""
    return nullcontext() if torch._C._len_torch_dispatch_stack() else torch._C._DisableTorchDispatch()


def _nothing_packed() -> AbstractContextManager[Any]:
    """Checkpointing packs what its own graph saves; ours keeps it."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved)


class Float64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A float32 model in float64: a cast to fewer bits, or numbers made with fewer, are in float64 too."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _NARROW:
            kwargs["dtype"] = torch.float64
        if not is_written(func) and any(t.dtype == torch.float64 for t in _tensors((args, kwargs))):
            args, kwargs = tree_map_only(Tensor, _widened, (args, kwargs))
        return func(*args, **kwargs)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.dtype in _NARROW else tensor


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


@cache
def is_written(func: Any) -> bool:
    """Whether an operation writes into one of its arguments.

    Args:
        func: As a dispatch mode is told of it.
    """
    return bool(func._schema.is_mutable)


@dataclass(frozen=True)
class TrueBlocks(Blocks):
    """The same partition; its derivative is that of its forward, whatever the model says of its own backward.

    Args:
        table: Named inputs, where the model takes several.
        segments: Which block's weights a parameter outside all of them is, where blocks have none of their own.
    """

    table: Table | None = None
    segments: Mapping[str, int] = field(default_factory=dict)

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
        # A layer that counts its calls in a buffer must not write into the model's own.
        buffers = {name: params.get(name, buffer).clone() for name, buffer in self.model.named_buffers()}
        full = {**params, **buffers}
        # A layer that works in place must not write into a state that is used again.
        fresh = None if replace is None else {level: h.clone() for level, h in replace.items()}
        return super().forward(full, x, taps=taps, replace=fresh, detach=detach, penalty=penalty)

    def run(self, params: Params, x: Tensor) -> Tensor:
        """The logits of the model itself with other parameters.

        Args:
            params: Parameters and buffers by name.
            x: Inputs.
        """
        dtype = next((p.dtype for p in params.values() if p.is_floating_point()), torch.float32)
        with _arithmetic(self.model, dtype), holding(self.model, params):
            return call(self.model, inputs_of(self.table, x, dtype))  # type: ignore[no-any-return]

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

    def inputs(self, x: Tensor) -> Inputs:
        """What the model itself is given for these samples.

        Args:
            x: As a batch holds them.
        """
        return inputs_of(self.table, x, next(self.model.parameters()).dtype)

    def vjp(self, function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
        """As ``torch.func.vjp``, of the forward as it stands; what the result does not depend on has gradient None.

        Args:
            function: Of the primals; runs the model.
            primals: Trees of tensors.
            has_aux: Whether the function also returns something that is not differentiated.
        """
        if torch._C._are_functorch_transforms_active():
            return super().vjp(function, *primals, has_aux=has_aux)
        leaves, spec = tree_flatten(primals)
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        shadows = Shadows()
        with shadows, torch.enable_grad(), _recording(shadows):
            # The model meets them as it meets its parameters in training: they require a gradient.
            plain = [shadows.stand_for(leaf.detach().requires_grad_(), leaf) for leaf in leaves]
            returned = function(*tree_unflatten(plain, spec))
            out, *aux = returned if has_aux else (returned,)
            kept = tree_map_only(Tensor, shadows.of, out)
        results = _tensors(kept)

        def pullback(cotangents: Any) -> tuple[Any, ...]:
            pairs = [(r, c) for r, c in zip(results, _tensors(cotangents), strict=True) if r.requires_grad]
            if not pairs:
                return tuple(tree_unflatten([None] * len(leaves), spec))
            outputs, grads = zip(*pairs, strict=True)
            found = torch.autograd.grad(outputs, leaves, grads, allow_unused=True, retain_graph=True)
            return tuple(tree_unflatten(list(found), spec))

        bare, *rest = tree_map_only(Tensor, Tensor.detach, (kept, *aux))
        return bare, pullback, *rest

    def reached(self, function: Callable[[Params], Tensor], params: Params) -> set[str]:
        """As ``Blocks.reached``.

        Args:
            function: Of the parameters; runs the model.
            params: The parameters.
        """
        out, pullback = self.vjp(function, dict(params))
        return {name for name, grad in pullback(torch.ones_like(out))[0].items() if grad is not None}

    def cut(self, h: Tensor) -> Tensor:
        """As ``Blocks.cut``; while the forward is recorded, ``detach`` alone would cut nothing.

        Args:
            h: A state.
        """
        shadows = _tape.get()
        if shadows is None:
            return super().cut(h)
        own = shadows.of(h)
        with _disable_current_modes():
            return shadows.stand_for(own.detach().requires_grad_(), own.detach())

    def own_names(self, block: int) -> list[str]:
        """Parameters inside a block.

        Args:
            block: Its index.
        """
        return [name for name, _ in self.model.named_parameters() if self.block_of(name) == block]

    def block_of(self, parameter: str) -> int | None:
        """As ``Blocks.block_of``; also of a weight between two blocks that have none.

        Args:
            parameter: Its name.
        """
        inside = super().block_of(parameter)
        return self.segments.get(parameter) if inside is None else inside


@contextmanager
def _recording(shadows: Shadows) -> Iterator[None]:
    before = _tape.set(shadows)
    try:
        yield
    finally:
        _tape.reset(before)


def _arithmetic(model: nn.Module, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Of a float64 copy: what the code casts to its own dtype is cast to float64."""
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), dtype)
    return Float64() if dtype == torch.float64 != own else nullcontext()  # type: ignore[no-untyped-call]


@contextmanager
def holding(model: nn.Module, tensors: Params) -> Iterator[None]:
    """Inside, the model holds these parameters and buffers wherever it holds its own, also under a second name.

    Args:
        model: The user's model.
        tensors: By the names that ``named_parameters`` and ``named_buffers`` give.
    """
    own = dict((*model.named_parameters(), *model.named_buffers()))
    given = {id(tensor): tensors[name] for name, tensor in own.items() if name in tensors}
    kept: list[tuple[dict[str, Any], str, Tensor]] = []
    try:
        for module in model.modules():
            for held in (vars(module)["_parameters"], vars(module)["_buffers"]):
                for name, tensor in held.items():
                    if id(tensor) in given:
                        kept.append((held, name, tensor))
                        held[name] = given[id(tensor)]
        yield
    finally:
        for held, name, tensor in kept:
            held[name] = tensor
