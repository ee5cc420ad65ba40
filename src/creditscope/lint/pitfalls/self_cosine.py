"""CS006: the cosine of a vector with itself."""

import ast
from collections.abc import Iterator

from creditscope.lint.calls import argument, method, receiver
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.recognise import is_cosine_call
from creditscope.lint.source import Source, same

_SAME_VALUE = {"detach", "clone", "float", "double", "cpu", "cuda", "contiguous", "to", "numpy", "flatten", "ravel"}
_RANDOM = ("rand", "normal", "multinomial", "bernoulli", "dropout", "sample", "choice", "perm")
# Called as f(X, X), these give the whole matrix of cosines between the rows.
_PAIRWISE = ("sklearn.", "sentence_transformers.", "torchmetrics.")


def find(source: Source) -> Iterator[Hit]:
    """Find cosines of one expression with itself, or with a value that falls back to it.

    Args:
        source: The file.
    """
    for call in source.calls():
        if not is_cosine_call(source, call) or (source.qualified(call.func) or "").startswith(_PAIRWISE):
            continue
        first, second = argument(call, 0, "x1", "input"), argument(call, 1, "x2", "other")
        if first is None or second is None or any(isinstance(node, ast.Assert) for node in source.ancestors(call)):
            continue
        if _equal(source, first, second):
            yield Hit(call, "both sides of this cosine are the same vector: it is 1 whatever was learned")
        elif _falls_back(source, first, second) or _falls_back(source, second, first):
            yield Hit(
                call,
                "one side of this cosine falls back to the other when it is missing: a self-cosine of 1 is recorded",
                "record the cosine as not measured when the credit is missing; give the lookup no default",
            )


def _equal(source: Source, first: ast.expr, second: ast.expr) -> bool:
    first, second = _bare(source, first), _bare(source, second)
    if not same(first, second):
        # ``b = a`` and then cosine(a, b): follow one plain copy.
        copies = [_bare(source, value) for node in (first, second) if (value := source.only_value(node)) is not None]
        return any(isinstance(copy, ast.Name) and (same(copy, first) or same(copy, second)) for copy in copies)
    return not any(_may_differ(source, part) for part in ast.walk(first))


def _bare(source: Source, node: ast.expr) -> ast.expr:
    """An expression without the calls that keep its values in their order."""
    while isinstance(node, ast.Call) and (inner := receiver(source, node)) is not None:
        flat = method(node) in ("view", "reshape") and [source.number(item) for item in node.args] == [-1.0]
        if not flat and method(node) not in _SAME_VALUE:
            break
        node = inner
    return node


def _may_differ(source: Source, node: ast.AST) -> bool:
    """Whether a call may give another value the second time."""
    if not isinstance(node, ast.Call):
        return False
    name = source.qualified(node.func)
    known = name is not None and name.startswith(("torch.", "numpy."))
    if not known and method(node) not in _SAME_VALUE | {"view", "reshape", "mean", "sum", "norm", "t", "squeeze"}:
        return True
    return any(word in (name or "") for word in _RANDOM)


def _falls_back(source: Source, node: ast.expr, other: ast.expr) -> bool:
    """Whether an expression is ``other`` by default: ``found.get(k, other)``, ``x or other``, ``x if … else other``."""
    for value in (_bare(source, node), *source.values(node)):
        match value:
            case ast.Call(func=ast.Attribute(attr="get"), args=[_, default]):
                options = [default]
            case ast.BoolOp(op=ast.Or(), values=options):
                pass
            case ast.IfExp(body=body, orelse=orelse):
                options = [body, orelse]
            case ast.Call(args=[_, _, default]) if isinstance(value.func, ast.Name) and value.func.id == "getattr":
                options = [default]
            case _:
                continue
        if any(_equal(source, option, other) for option in options):
            return True
    return False


PITFALL = Pitfall(
    code="CS006",
    title="the cosine of a vector with itself",
    why=(
        "A script without its auxiliary networks compared the gradient with itself and recorded a perfect alignment of "
        "1.0. A self-cosine is 1 by construction and measures nothing."
    ),
    fix="compare the credit that the rule delivered with the reference gradient; where it was not saved, say so",
    wrong="def alignment(cosine, g):\n    return cosine(g, g)",
    right="def alignment(cosine, c, g):\n    return cosine(c, g)",
    find=find,
)
