"""A fingerprint of a user's functions and data: a run that was trained by other code is never taken for this one."""

import functools
import hashlib
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(*values: Any) -> str:
    """SHA-256 over source, what it refers to in its own module, closed-over values, tensors and plain values.

    What cannot be looked into counts by its type alone: a loader by that of its data set and its length.

    Args:
        values: Functions, data and settings.
    """
    digest = hashlib.sha256()
    seen: dict[int, Any] = {}  # held, so that no id is used twice
    for value in values:
        for part in _parts(value, seen):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def reachable(value: Any) -> Iterator[Any]:
    """What a function can get at: closed-over values, defaults, and what it takes from its module by name.

    Args:
        value: The function, or a callable object.
    """
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, _PLAIN) or id(found) in seen:
            continue
        seen[id(found)] = found
        yield found
        if not isinstance(found, (torch.Tensor, np.ndarray, type)):
            waiting += [inner for inner in _inside(found) if not isinstance(inner, (memoryview, type))]
        if isinstance(found, types.FunctionType):
            waiting += [found.__globals__[name] for name in found.__code__.co_names if name in found.__globals__]


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    if isinstance(value, _PLAIN):
        yield repr(value).encode()
        return
    yield type(value).__qualname__.encode()
    if id(value) in seen:
        return
    seen[id(value)] = value
    for inner in _inside(value):
        if isinstance(inner, memoryview):
            yield hashlib.sha256(inner).digest()
        else:
            yield from _parts(inner, seen)


def _inside(value: Any) -> Iterator[Any]:
    """What a value is made of."""
    if isinstance(value, torch.Tensor):
        yield from (str(value.dtype), repr(tuple(value.shape)))
        yield value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield from (str(value.dtype), repr(value.shape), np.ascontiguousarray(value).reshape(-1).view("u1").data)
    elif isinstance(value, Mapping):
        yield from (part for item in value.items() for part in item)
    elif isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, (set, frozenset)):
        yield from sorted(map(repr, value))
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        yield from (_source(value), value.__defaults__, value.__kwdefaults__)
        yield from (cell.cell_contents for cell in value.__closure__ or () if _filled(cell))
        yield from _named(value.__code__, value.__globals__, value.__module__)
    elif isinstance(value, type):
        yield _source(value)
        # Its base classes where they are of the same module.
        yield from (base for base in value.__bases__ if base.__module__ == value.__module__)
    elif hasattr(value, "dataset"):
        yield from (type(value.dataset).__qualname__, len(value.dataset) if hasattr(value.dataset, "__len__") else None)
    elif not isinstance(value, (types.ModuleType, torch.nn.Module)) and hasattr(value, "__dict__"):
        yield from (type(value), {k: v for k, v in vars(value).items() if not k.startswith("__")})


def _named(code: types.CodeType, among: Mapping[str, Any], module: str) -> Iterator[Any]:
    """What a function takes from its module by name: constants, and functions and classes that stand there."""
    for name in code.co_names:
        found = among.get(name)
        if isinstance(found, (*_PLAIN, Mapping, list, tuple)) and name in among:
            yield (name, found)
        elif isinstance(found, (types.FunctionType, type)) and found.__module__ == module:
            yield found
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant, among, module)


def _source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):  # typed in a shell, or made by exec
        code = getattr(value, "__code__", None)
        if code is None:
            return str(value.__qualname__)
        constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
        return f"{code.co_code.hex()} {constants!r}"


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
