"""Traced: a pure function of tensors, written down once as a plain list of operations and replayed without detours."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.dialect.common.cse_pass import CSEPass

logger = logging.getLogger("creditscope")
_aten = torch.ops.aten


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
            listed = simplify(make_fx(self._function)(*args))
        except Exception as error:  # a user's model may hold what cannot be traced, and training does not need it
            if self._compiled:
                raise
            logger.warning("tracing failed (%s): these runs train untraced, and slower", type(error).__name__)
            return self._function
        return torch.compile(listed, dynamic=False) if self._compiled else listed


def simplify(listed: GraphModule) -> GraphModule:
    """The same list without products by one, detours, repetitions, and what nobody reads.

    Args:
        listed: From ``make_fx``.
    """
    for node in listed.graph.nodes:
        by_one = node.target is _aten.mul.Scalar and node.args[1] == 1
        same = node.args[0] if by_one or node.target is _aten.detach.default else _normed(node)
        if same is not None:
            node.replace_all_uses_with(same)
    shorter = CSEPass()(listed)
    assert shorter is not None
    graph = shorter.graph_module.graph
    graph.set_codegen(listed.graph._codegen)  # how arguments are nested is not the pass's to forget
    graph.eliminate_dead_code()
    return GraphModule(shorter.graph_module, graph)


def _normed(node: Node) -> Node | None:
    """Where a node normalises again what a layer norm has normalised: what that put out."""
    if node.target is not _aten.mul.Tensor:
        return None
    centred, scale = node.args
    if not (isinstance(centred, Node) and centred.target is _aten.sub.Tensor and isinstance(scale, Node)):
        return None
    of, (x, mean) = scale.args[0], centred.args
    if not (isinstance(of, Node) and of.target is _aten.native_layer_norm.default and isinstance(mean, Node)):
        return None
    plain = of.args[2] is None and of.args[3] is None
    if not (plain and of.args[0] is x and mean.args == (of, 1) and scale.args == (of, 2)):
        return None
    return next((user for user in of.users if user.args == (of, 0)), None)
