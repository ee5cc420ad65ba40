"""What an expression computes, judged from its shape and its names: a norm, a cosine, a gradient, a quotient."""

import ast
from collections import deque
from collections.abc import Iterator

from creditscope.lint.calls import argument, called_name, method, own_name, receiver
from creditscope.lint.source import Source, remembered
from creditscope.lint.text import like_cosine, like_epsilon, like_gradient, like_norm

# A floor below this never acts: in float32 the squares of such a norm have long underflowed.
NEGLIGIBLE = 1e-30
LARGEST_GUARD = 1e-2
_MAX_ORIGINS = 64

NORMS = {"torch.norm", "torch.functional.norm", "torch.linalg.norm", "torch.linalg.vector_norm"} | {
    f"{library}.linalg.norm" for library in ("numpy", "scipy", "jax.numpy")
}
COSINES = {"torch.cosine_similarity", "torch.nn.functional.cosine_similarity"}
AXIS_NAMES = ("dim", "axis", "dims", "axes")
COSINE_MODULE = "torch.nn.CosineSimilarity"
_TRIGONOMETRY = {f"{library}.cos" for library in ("torch", "numpy", "math", "jax.numpy", "cmath")}
_SQUARE_ROOTS = {f"{library}.sqrt" for library in ("torch", "numpy", "math", "jax.numpy")}
_DOTS = {
    f"{library}.{name}"
    for library in ("torch", "numpy", "jax.numpy")
    for name in ("dot", "vdot", "inner", "matmul", "einsum", "sum")
} | {"torch.linalg.vecdot"}
_DOT_METHODS = {"dot", "vdot", "inner", "matmul", "sum"}
# Calls after which a norm is still a norm and a cosine still a cosine.
_KEEPS = {
    "item", "mean", "median", "min", "max", "amin", "amax", "nanmean", "quantile", "abs", "clip", "clamp", "detach",
    "clone", "cpu", "cuda", "numpy", "tolist", "to", "float", "double", "squeeze", "unsqueeze", "flatten", "view",
    "reshape",
}  # fmt: skip
_KEEPING_FUNCTIONS = {"float", "min", "max"} | {
    f"{library}.{name}" for library in ("torch", "numpy", "jax.numpy") for name in ("mean", "median", "clip", "clamp")
}


def is_norm_call(source: Source, node: ast.AST) -> bool:
    """Whether a node is itself a call that takes a norm: ``x.norm()``, ``torch.linalg.norm(x)`` …."""
    if not isinstance(node, ast.Call):
        return False
    if (name := source.qualified(node.func)) is not None:
        return name in NORMS
    if method(node) != "norm":
        return False
    # ``self.norm(h)`` is a normalisation layer: a tensor's own norm takes an order first, never a tensor.
    if not node.args:
        return True
    order = node.args[0]
    return isinstance(order, ast.Constant | ast.UnaryOp) or own_name(order) in ("p", "ord", *AXIS_NAMES)


@remembered
def is_norm(source: Source, node: ast.AST, hops: int) -> bool:
    """Whether an expression is the norm of something, possibly reduced over samples.

    Args:
        source: The file.
        node: The expression.
        hops: How many names and wrappers may still be followed.
    """
    if is_norm_call(source, node):
        return True
    if isinstance(node, ast.Call | ast.BinOp) and (inside := square_root(source, node)) is not None:
        return is_sum(source, inside, hops - 1)
    if (inner := _kept(source, node)) is not None:
        return is_norm(source, inner, hops - 1)
    if like_norm(own_name(node)):
        return True
    return any(is_norm(source, value, hops - 1) for value in source.values(_base(node)))


def square_root(source: Source, node: ast.AST) -> ast.expr | None:
    """What an expression takes the square root of, if it does."""
    match node:
        case ast.BinOp(left=left, op=ast.Pow(), right=right) if source.number(right) == 0.5:
            return left
        case ast.Call(args=[first]) if source.qualified(node.func) in _SQUARE_ROOTS:
            return first
        case ast.Call(func=ast.Attribute(value=value, attr="sqrt"), args=[]):
            return value
    return None


@remembered
def is_sum(source: Source, node: ast.AST, hops: int) -> bool:
    """Whether an expression is an inner product or a sum, as a dot product or a squared norm is."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if isinstance(node, ast.Call):
        if source.qualified(node.func) in _DOTS or method(node) in _DOT_METHODS or called_name(node) == "sum":
            return True
        inner = _kept(source, node)
        return inner is not None and is_sum(source, inner, hops - 1)
    return any(is_sum(source, value, hops - 1) for value in source.values(node))


def is_cosine_call(source: Source, node: ast.AST) -> bool:
    """Whether a node is a call of a cosine similarity: torch's, or a function that is named like one."""
    if not isinstance(node, ast.Call):
        return False
    name = source.qualified(node.func)
    if name is not None and (name in COSINES or name in _TRIGONOMETRY):
        return name in COSINES
    if is_cosine_module(source, node.func):
        return True
    given = len(node.args) + len(node.keywords)
    return given >= 2 and name != COSINE_MODULE and like_cosine(called_name(node))


def is_cosine_module(source: Source, node: ast.AST) -> bool:
    """Whether an expression is an instance of torch's ``CosineSimilarity`` module."""
    made = [node, *source.values(node)]
    return any(isinstance(value, ast.Call) and source.qualified(value.func) == COSINE_MODULE for value in made)


@remembered
def is_cosine(source: Source, node: ast.AST, hops: int) -> bool:
    """Whether an expression is a cosine similarity, or goes by the name of one.

    Args:
        source: The file.
        node: The expression.
        hops: How many names and wrappers may still be followed.
    """
    if is_cosine_call(source, node):
        return True
    if (inner := _kept(source, node)) is not None:
        return is_cosine(source, inner, hops - 1)
    if (parts := quotient(source, node)) is not None:
        return guarded_norm_product(source, parts)[0]
    values = source.values(_base(node))
    if any(_has_trigonometry(source, value) for value in values):
        return False
    return like_cosine(own_name(node)) or any(is_cosine(source, value, hops - 1) for value in values)


def quotient(source: Source, node: ast.AST) -> tuple[ast.expr, list[ast.expr]] | None:
    """Numerator and denominators of a division; ``a / b / c`` has two denominators."""
    denominators: list[ast.expr] = []
    while True:
        match node:
            case ast.BinOp(left=above, op=ast.Div(), right=below):
                pass
            case ast.Call(func=ast.Attribute(attr="div" | "divide" | "true_divide"), args=[above, below]):
                if not (source.qualified(node.func) or "").startswith(("torch.", "numpy.")):
                    return None
            case ast.Call(func=ast.Attribute(value=above, attr="div" | "divide"), args=[below]):
                pass
            case _:
                return (node, denominators) if denominators and isinstance(node, ast.expr) else None
        denominators.append(below)
        node = above


def strip_guard(source: Source, node: ast.AST) -> ast.expr | None:
    """What an added or clamping epsilon protects: ``n`` of ``n + 1e-8`` or ``n.clamp(min=1e-8)``; None without one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for guard, inner in ((node.right, node.left), (node.left, node.right)):
            if _is_epsilon(source, guard):
                return inner
        return None
    if not isinstance(node, ast.Call):
        return None
    name = source.qualified(node.func)
    tail = name.rsplit(".", 1)[-1] if name else called_name(node)
    if tail in ("clamp", "clamp_min", "clip", "clamp_", "clamp_min_"):
        own = receiver(source, node)
        low = argument(node, 1 if own is None else 0, "min", "a_min")
        return (own or argument(node, 0, "input", "a")) if _is_epsilon(source, low) else None
    if tail in ("max", "maximum", "fmax") and len(node.args) == 2:
        for guard, inner in ((node.args[1], node.args[0]), (node.args[0], node.args[1])):
            if _is_epsilon(source, guard):
                return inner
    return None


def guarded_norm_product(source: Source, parts: tuple[ast.expr, list[ast.expr]]) -> tuple[bool, bool]:
    """Judge a quotient.

    Args:
        source: The file.
        parts: Its numerator and denominators.

    Returns:
        Whether it is divided by a product of two norms, as a cosine is, and whether an epsilon guards them.
    """
    numerator, denominators = parts
    norms, guarded = 0, False
    pending = list(denominators)
    followed: set[ast.expr] = set()
    while pending:
        node = pending.pop()
        inner = strip_guard(source, node)
        if inner is not None:
            guarded, node = True, inner
        root = square_root(source, node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            pending += [node.left, node.right]
        elif root is not None and _is_product_of_sums(source, strip_guard(source, root) or root):
            norms += 2 * is_sum(source, numerator)
            guarded |= strip_guard(source, root) is not None
        elif new := [value for value in _worth_following(source, node) if value not in followed]:
            followed.update(new)
            pending += new
        elif is_norm(source, node):
            norms += 1
    return norms >= 2, guarded


def is_gradient(source: Source, node: ast.AST) -> bool:
    """Whether an expression is built from a gradient or a credit signal."""
    return any(like_gradient(own_name(part)) for part in origins(source, node))


def origins(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """Every node of an expression and of the expressions that its names were assigned, each once, the nearest first."""
    pending, seen = deque([node]), {node}
    while pending:
        for part in ast.walk(pending.popleft()):
            yield part
            if isinstance(part, ast.Name | ast.Attribute) and len(seen) < _MAX_ORIGINS:
                new = [value for value in source.values(part) if value not in seen]
                seen.update(new)
                pending += new


def constant(source: Source, node: ast.AST | None) -> float | None:
    """The number that an expression fills in everywhere: ``1.0``, ``torch.ones_like(x)``, ``torch.tensor(0.0)`` …."""
    if not isinstance(node, ast.Call):
        return source.number(node)
    match called_name(node):
        case "ones_like" | "ones" | "new_ones":
            return 1.0
        case "zeros_like" | "zeros" | "new_zeros":
            return 0.0
        case "full_like" | "full":
            return source.number(argument(node, 1, "fill_value"))
        case "tensor" | "as_tensor" | "float" | "array":
            return source.number(argument(node, 0, "data"))
    return None


def _kept(source: Source, node: ast.AST) -> ast.expr | None:
    """The value inside a call that does not change what kind of thing it is."""
    if not isinstance(node, ast.Call):
        return None
    if (inner := receiver(source, node)) is not None:
        return inner if method(node) in _KEEPS else None
    name = source.qualified(node.func) or called_name(node)
    return node.args[0] if name in _KEEPING_FUNCTIONS and node.args else None


def _worth_following(source: Source, node: ast.AST) -> list[ast.expr]:
    """The values of a name in which a product or a guard may hide."""
    kinds = ast.BinOp | ast.Name | ast.Attribute
    return [
        value for value in source.values(node) if isinstance(value, kinds) or strip_guard(source, value) is not None
    ]


def _base(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _has_trigonometry(source: Source, node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Call)
        and (source.qualified(part.func) in _TRIGONOMETRY or (method(part) == "cos" and not part.args))
        for part in ast.walk(node)
    )


def _is_epsilon(source: Source, node: ast.AST | None) -> bool:
    if isinstance(node, ast.Call) and called_name(node) == "tensor" and node.args:
        node = node.args[0]
    if node is None:
        return False
    value = source.number(node)
    if value is not None:
        return NEGLIGIBLE < value <= LARGEST_GUARD
    return isinstance(node, ast.Name | ast.Attribute) and like_epsilon(own_name(node))


def _is_product_of_sums(source: Source, node: ast.AST) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and is_sum(source, node.left)
        and is_sum(source, node.right)
    )
