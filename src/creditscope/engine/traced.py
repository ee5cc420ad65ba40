"""Traced: a pure function of tensors, written down once as a plain list of operations and replayed without detours."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from creditscope.engine.rewrite import simplify, suit_gpu

logger = logging.getLogger("creditscope")


class Traced:
    """Traces a function at its first call, for the shapes of that call; from then on the list is gone through.

    The list lies below ``vmap``, ``vjp`` and forward hooks: what they cost at every operation is paid once, and what
    they compute twice is computed once. The values are the same to rounding.

    Args:
        function: Pure; tensors, and tuples and dicts of tensors, in and out.
        compiled: Whether the list is compiled into fewer and larger kernels, which takes seconds.
    """

    def __init__(self, function: Callable[..., Any], compiled: bool = False) -> None:
        self._function = function
        self._compiled = compiled
        self._traced: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """The function's value."""
        if self._traced is None:
            self._traced = self._trace(args)
        return self._traced(*args)

    def _trace(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        try:
            listed = simplify(self._listed(args))
        except Exception as error:  # a user's model may hold what cannot be traced, and training does not need it
            if self._compiled:
                raise
            logger.warning("tracing failed (%s): these runs train untraced, and slower", type(error).__name__)
            return self._function
        if any(leaf.is_cuda for leaf in tree_leaves(args) if isinstance(leaf, Tensor)):
            listed = suit_gpu(listed)
        return torch.compile(listed, dynamic=False) if self._compiled else listed

    def _listed(self, args: tuple[Any, ...]) -> GraphModule:
        """The list, made on tensors without content where that goes: tracing holds on to every intermediate value.

        Forward-mode differentiation of a LayerNorm is lost on such tensors.
        """
        try:
            trace = make_fx(self._function, tracing_mode="fake", _allow_non_fake_inputs=True)
            return trace(*args)
        except RuntimeError:  # what goes wrong for other reasons does so again below
            return make_fx(self._function, tracing_mode="real")(*args)
