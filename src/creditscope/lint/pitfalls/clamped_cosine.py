"""CS002: a cosine whose norms are clamped or padded by an epsilon."""

import ast
from collections.abc import Iterator

from creditscope.lint.calls import argument, called_name, method
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.recognise import (
    COSINE_MODULE,
    COSINES,
    NEGLIGIBLE,
    guarded_norm_product,
    is_norm,
    quotient,
    strip_guard,
)
from creditscope.lint.source import Source

_TORCH_EPS = 1e-8
_PRODUCTS = {"torch.dot", "torch.vdot", "torch.inner", "torch.matmul", "numpy.dot", "numpy.inner", "numpy.vdot"}


def find(source: Source) -> Iterator[Hit]:
    """Find torch's cosine with an epsilon that acts, and hand-written cosines with a guarded denominator.

    Args:
        source: The file.
    """
    for node in source.nodes:
        if isinstance(node, ast.Call) and (message := _torch_clamp(source, node)):
            yield Hit(node, message)
        elif isinstance(node, ast.expr) and _is_outermost_guarded_quotient(source, node):
            yield Hit(
                node, "the denominator of this cosine is padded by an epsilon: it shrinks towards 0 once the norms do"
            )
        elif isinstance(node, ast.expr) and (pair := _product(source, node)) and all(_padded(source, x) for x in pair):
            yield Hit(
                node, "this cosine multiplies vectors whose norms were padded by an epsilon: tiny ones count as 0"
            )


def _torch_clamp(source: Source, call: ast.Call) -> str | None:
    """What torch's cosine does to small norms in this call; None if it is not one or its epsilon cannot act."""
    name = source.qualified(call.func)
    if name not in COSINES and name != COSINE_MODULE:
        return None
    given = argument(call, 1 if name == COSINE_MODULE else 3, "eps")
    if any(item.arg is None for item in call.keywords):
        return None
    eps = _TORCH_EPS if given is None else source.number(given)
    if _is_machine_epsilon(given):
        return "torch's cosine clamps each norm at the machine epsilon given here: gradients are often smaller"
    if eps is None or eps <= NEGLIGIBLE:
        return None
    return f"torch's cosine clamps each norm at {eps:g}: below it the value shrinks towards 0 and says nothing"


def _is_machine_epsilon(node: ast.expr | None) -> bool:
    match node:
        case ast.Attribute(value=ast.Call() as call, attr="eps"):
            return called_name(call) == "finfo"
    return False


def _is_outermost_guarded_quotient(source: Source, node: ast.expr) -> bool:
    parts = quotient(source, node)
    if parts is None or not all(guarded_norm_product(source, parts)):
        return False
    parent = source.parents.get(node)
    above = quotient(source, parent) if parent is not None else None
    return above is None or above[0] is not parts[0]


def _product(source: Source, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The two factors of an inner product."""
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return left, right
        case ast.Call(func=ast.Attribute(value=ast.BinOp(left=left, op=ast.Mult(), right=right), attr="sum")):
            return left, right
        case ast.Call(args=[ast.BinOp(left=left, op=ast.Mult(), right=right), *_]) if source.qualified(node.func) in (
            "torch.sum",
            "numpy.sum",
        ):
            return left, right
        case ast.Call(args=[left, right]) if source.qualified(node.func) in _PRODUCTS:
            return left, right
        case ast.Call(func=ast.Attribute(value=left), args=[right]) if method(node) in ("dot", "inner", "vdot"):
            return left, right
    return None


def _padded(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a vector divided by its own norm and an epsilon."""
    for value in (node, *source.values(node)):
        parts = quotient(source, value)
        inner = strip_guard(source, parts[1][0]) if parts and len(parts[1]) == 1 else None
        if inner is not None and is_norm(source, inner):
            return True
    return False


PITFALL = Pitfall(
    code="CS002",
    title="a clamped cosine",
    why=(
        "torch's cosine_similarity divides by max(norm, 1e-8), and a hand-written `/ (na * nb + eps)` does worse. Deep "
        "gradients of mean-reduced losses are often that small: the self-cosine of two vectors of norm 1e-9 reads 0.01."
    ),
    fix=(
        "cast to float64 and divide by the bare norms, `(a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))`; "
        "leave zero vectors undefined (NaN) and count them"
    ),
    wrong="import torch.nn.functional as F\n\ndef cosine(c, g):\n    return F.cosine_similarity(c, g, dim=-1)",
    right=(
        "def cosine(c, g):\n    c, g = c.double(), g.double()\n"
        "    return (c * g).sum(-1) / (c.norm(dim=-1) * g.norm(dim=-1))"
    ),
    find=find,
)
