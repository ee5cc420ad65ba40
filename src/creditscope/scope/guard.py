"""Keep what a user's code may touch: memory it writes into, random numbers it draws. Nothing of another thread's."""

import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_SEED = 0
# Arguments that say how much an operation drops, or whether it drops at all.
_GENERATOR = ("generator", "Optional[Generator]")
_RATES = ("dropout_p", "dropout", "train")
_guard: ContextVar["Guard | None"] = ContextVar("guard", default=None)


class Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of this thread: memory is copied before a write, draws are from generators of our own.

    Args:
        tensors: Whose memory is to be as it was.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watched = {_memory(t): t for t in tensors if t.layout == torch.strided and not t.is_meta}
        self._copies: dict[int, Tensor] = {}
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        written, seeded = _of(func)
        for at, name in written:
            self._keep(args[at] if at < len(args) else kwargs.get(name))
        if seeded is None or _is_off(func, args, kwargs):
            return func(*args, **kwargs)
        device = torch.device(kwargs.get("device") or next((a.device for a in args if isinstance(a, Tensor)), "cpu"))
        generator = self._generator(device)
        if any(a.name == "generator" for a in seeded._schema.arguments):
            return seeded(*args, **{**kwargs, "generator": kwargs.get("generator") or generator})
        return _drawn(func, args, kwargs, generator)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, it watches this thread."""
        token = _guard.set(self)
        try:
            with self:
                yield
        finally:
            _guard.reset(token)

    def begin_again(self) -> None:
        """Draw from now on what was drawn from the start on."""
        self._generators.clear()

    def put_back(self) -> None:
        """Write back what was written over."""
        with torch.no_grad(), torch.inference_mode():
            for memory, copy in self._copies.items():
                self._watched[memory].untyped_storage().copy_(copy.untyped_storage())

    def _keep(self, written: Any) -> None:
        for tensor in written if isinstance(written, (tuple, list)) else (written,):
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                memory = _memory(tensor)
                if memory in self._watched and memory not in self._copies:
                    own = self._watched[memory].untyped_storage()
                    self._copies[memory] = torch.empty(0, dtype=torch.uint8, device=own.device).set_(own.clone())  # type: ignore[no-untyped-call]

    def _generator(self, device: torch.device) -> torch.Generator:
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(_SEED)
        return self._generators[device]


def current() -> Guard | None:
    """The guard of this thread; None outside ``restoring``."""
    return _guard.get()


class RandomStates:
    """The process-wide random states of torch, NumPy and Python, put back as they were.

    Torch's draws are from generators of our own; its state is left alone beside other threads, whose draws it may hold,
    unless the code seeded it. Nobody can say which thread drew from NumPy's or Python's: they are put back always.
    """

    def __init__(self, device: torch.device) -> None:
        self._alone = threading.active_count() == 1
        generators = {torch.default_generator, _default(device)}
        self._torch = [(each, each.get_state(), each.initial_seed()) for each in generators]
        self._numpy, self._python = np.random.get_state(), random.getstate()

    def put_back(self) -> None:
        """As they were."""
        alone = self._alone and threading.active_count() == 1
        for generator, state, seed in self._torch:
            if generator.initial_seed() != seed or (alone and not torch.equal(generator.get_state(), state)):
                generator.set_state(state)
        np.random.set_state(self._numpy)
        random.setstate(self._python)


@cache
def _of(func: Any) -> tuple[tuple[tuple[int, str], ...], Any]:
    """Which arguments an operation writes into; where it draws, the form of it that is told from which generator."""
    arguments = func._schema.arguments
    written = tuple(
        (at, a.name) for at, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write
    )
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return written, None
    forms = [func, *(getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads())]
    wanted = {(a.name, str(a.type)) for a in arguments if a.name != "generator"}
    return written, next((form for form in forms if _asks(form) == wanted | {_GENERATOR}), func)


def _asks(func: Any) -> set[tuple[str, str]]:
    return {(a.name, str(a.type)) for a in func._schema.arguments}


def _is_off(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation with a dropout in it drops nothing."""
    names = [a.name for a in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return any(name in names and not given.get(name) for name in _RATES)


def _drawn(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], generator: torch.Generator) -> Any:
    """An operation that draws from the default generator only, which stands where ours does while it runs."""
    default = _default(generator.device)
    before = default.get_state()
    try:
        default.set_state(generator.get_state())
        out = func(*args, **kwargs)
        generator.set_state(default.get_state())
        return out
    finally:
        default.set_state(before)


def _default(device: torch.device) -> torch.Generator:
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
