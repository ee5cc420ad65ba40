"""Fused: a pure function of tensors, traced once and compiled; the same values, fewer and larger kernels."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx


class Fused:
    """Compiles a function at its first call, for the shapes of that call.

    The function is traced operation by operation first, below ``vmap`` and ``vjp``: the compiler alone cannot read
    forward hooks inside them.

    Args:
        function: Pure; tensors, and tuples and dicts of tensors, in and out.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """The function's value."""
        if self._compiled is None:
            self._compiled = torch.compile(make_fx(self._function)(*args), dynamic=False)
        return self._compiled(*args)
