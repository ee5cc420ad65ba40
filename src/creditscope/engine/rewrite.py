"""Rewriting a list of operations: the same values from fewer of them, and products split as suits a GPU."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.dialect.common.cse_pass import CSEPass

_aten = torch.ops.aten
_SAME_SHAPE = (_aten.expand.default, _aten.view.default, _aten._unsafe_view.default)
# On a GPU a product of matrices whose sums are so long is split along them until its tiles keep the processors busy:
# the weight gradients of a token sequence are small matrices that sum over all tokens of a batch.
LONG = 4096
TILE = 64
ENOUGH_TILES = 128


def simplify(listed: GraphModule) -> GraphModule:
    """The list without products by one, detours, repetitions, sums of products in two, and unused values.

    Args:
        listed: From ``make_fx``.
    """
    for node in listed.graph.nodes:
        if node.op == "call_function" and (same := _shorter(listed.graph, node)) is not None:
            node.replace_all_uses_with(same)
    shorter = CSEPass()(listed)
    assert shorter is not None
    graph = shorter.graph_module.graph
    graph.set_codegen(listed.graph._codegen)  # the pass must keep how arguments are nested
    graph.eliminate_dead_code()
    return GraphModule(shorter.graph_module, graph)


def suit_gpu(listed: GraphModule) -> GraphModule:
    """The list as a GPU does it fastest: long sums of products in parts, side by side.

    Args:
        listed: From ``simplify``.
    """
    for node in list(listed.graph.nodes):
        if node.target is _aten.bmm.default:
            _in_parts(listed.graph, node)
    listed.graph.eliminate_dead_code()
    listed.recompile()
    return listed


def _shorter(graph: Graph, node: Node) -> Node | None:
    """A node of the same value, where there is one that costs less."""
    first = node.args[0]
    if not isinstance(first, Node):
        return None
    by_one = node.target is _aten.mul.Scalar and node.args[1] == 1
    kept = node.target in _SAME_SHAPE and _shape(node) == _shape(first) is not None
    if by_one or kept or node.target is _aten.detach.default:
        return first
    return _normed(node) or _summed_product(graph, node)


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


def _summed_product(graph: Graph, node: Node) -> Node | None:
    """Where a node adds to a product that no other node reads: both in one, as for a layer norm's gain and bias."""
    if node.target is not _aten.add.Tensor or node.kwargs:
        return None
    for product, other in (node.args, node.args[::-1]):
        if isinstance(product, Node) and product.target is _aten.mul.Tensor and len(product.users) == 1:
            operands = (other, *product.args)
            if all(isinstance(each, Node) and _dtype(each) == _dtype(node) is not None for each in operands):
                return _insert(graph, node, _aten.addcmul.default, *operands, like=node)
    return None


def _in_parts(graph: Graph, node: Node) -> None:
    """Split a product of matrices along the axis that it sums over."""
    left, right = node.args
    assert isinstance(left, Node)
    shape, made = _shape(left), _shape(node)
    if shape is None or made is None:
        return
    (runs, rows, length), columns = shape, made[2]
    tiles = runs * -(-rows // TILE) * -(-columns // TILE)
    parts = 1
    while length >= LONG and tiles * parts < ENOUGH_TILES and length % (2 * parts) == 0:
        parts *= 2
    if parts == 1:
        return
    piece = length // parts
    a = _insert(graph, node, _aten.view.default, left, [runs, rows, parts, piece])
    a = _insert(graph, node, _aten.transpose.int, a, 1, 2)
    a = _insert(graph, node, _aten.reshape.default, a, [runs * parts, rows, piece])
    b = _insert(graph, node, _aten.reshape.default, right, [runs * parts, piece, columns])
    many = _insert(graph, node, _aten.bmm.default, a, b)
    many = _insert(graph, node, _aten.view.default, many, [runs, parts, rows, columns])
    node.replace_all_uses_with(_insert(graph, node, _aten.sum.dim_IntList, many, [1], like=node))


def _insert(graph: Graph, before: Node, target: Any, *args: Any, like: Node | None = None) -> Node:
    with graph.inserting_before(before):
        node = graph.call_function(target, args)
    if like is not None:
        node.meta = dict(like.meta)
    return node


def _shape(node: Node) -> torch.Size | None:
    value = node.meta.get("val")
    return value.shape if isinstance(value, Tensor) else None


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, Tensor) else None
