"""CS003: a cosine that is set to a number where it is undefined."""

import ast
import re
from collections.abc import Iterator

from creditscope.lint.calls import argument, called_name, keyword, method, own_name, receiver
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.recognise import LARGEST_GUARD, constant, is_cosine, is_gradient, is_norm, is_sum
from creditscope.lint.source import MAX_HOPS, Source
from creditscope.lint.text import like_angle, like_cosine

_UNDEFINED = {"isnan", "isfinite", "isinf"}
_FILLS = {"masked_fill", "masked_fill_"}
_NUMBERS = (-1.0, 0.0, 1.0)
# How people call a tensor of norms, or of whether they vanish, when they are brief.
_BRIEF_NORM = re.compile(r"n[a-z0-9]{0,2}|\w*zero\w*")
_DENOMINATOR = re.compile(r"denom\w*|den")


def find(source: Source) -> Iterator[Hit]:
    """Find every way of writing 0 or 1 for the cosine of zero vectors.

    Args:
        source: The file.
    """
    for node in source.nodes:
        match node:
            case ast.Call():
                filled = _filled_by_call(source, node)
            case ast.IfExp():
                filled = _filled_by_condition(source, node)
            case ast.Assign(targets=[ast.Subscript(value=target, slice=mask)], value=value):
                named = is_cosine(source, target) or like_angle(own_name(target))
                filled = constant(source, value) if named and _asks_zero(source, mask) else None
            case ast.If():
                yield from _filled_by_branches(source, node)
                continue
            case _:
                continue
        if filled in _NUMBERS:
            yield _hit(node, filled)


def _hit(node: ast.expr | ast.stmt, filled: float) -> Hit:
    return Hit(node, f"a cosine that is undefined (a zero vector) is recorded as {filled:g}")


def _filled_by_call(source: Source, call: ast.Call) -> float | None:
    """The number that ``where``, ``nan_to_num`` or ``masked_fill`` puts in the place of a cosine."""
    inner = receiver(source, call)
    name = called_name(call)
    if name == "where" and inner is None and len(call.args) == 3:
        test, first, second = call.args
        for value, other in ((first, second), (second, first)):
            if (
                (filled := constant(source, value)) is not None
                and is_cosine(source, other)
                and _asks_zero(source, test)
            ):
                return filled
    elif name == "where" and inner is not None and len(call.args) == 2:
        if is_cosine(source, inner) and _asks_zero(source, call.args[0]):
            return constant(source, call.args[1])
    elif name in ("nan_to_num", "nan_to_num_"):
        subject = inner if inner is not None else argument(call, 0, "input", "x")
        if is_cosine(source, subject):
            filler = keyword(call, "nan")
            return 0.0 if filler is None else constant(source, filler)
    elif (
        name in _FILLS
        and inner is not None
        and len(call.args) == 2
        and is_cosine(source, inner)
        and _asks_zero(source, call.args[0])
    ):
        return constant(source, call.args[1])
    return None


def _filled_by_condition(source: Source, node: ast.IfExp) -> float | None:
    if not _asks_zero(source, node.test, strict=True):
        return None
    for value, other in ((node.body, node.orelse), (node.orelse, node.body)):
        filled = constant(source, value)
        if filled is not None and (is_cosine(source, other) or _goes_to_cosine(source, node)):
            return filled
    return None


def _filled_by_branches(source: Source, node: ast.If) -> Iterator[Hit]:
    """Find ``cos = 1.0``, or ``return 1.0`` in a function named like a cosine, under a test for zero."""
    if not _asks_zero(source, node.test, strict=True):
        return
    for branch in (node.body, node.orelse):
        match branch:
            case [*_, ast.Assign(targets=[target], value=value)] if like_cosine(own_name(target)):
                pass
            case [*_, ast.Return(value=ast.expr() as value)] if _in_cosine_function(source, branch[-1]):
                pass
            case _:
                continue
        choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        numbers = [constant(source, choice) for choice in choices]
        if numbers[0] is not None and all(number in _NUMBERS for number in numbers):
            yield _hit(branch[-1], numbers[0])


def _goes_to_cosine(source: Source, node: ast.expr) -> bool:
    match source.parents.get(node):
        case ast.Assign(targets=[target]):
            return like_cosine(own_name(target))
        case ast.Return():
            return _in_cosine_function(source, node)
    return False


def _in_cosine_function(source: Source, node: ast.AST) -> bool:
    """Whether the function around a node is named like a cosine, or returns one elsewhere."""
    function = source.function(node)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    returned = (part.value for part in ast.walk(function) if isinstance(part, ast.Return))
    return like_cosine(function.name) or any(is_cosine(source, value) for value in returned)


def _asks_zero(source: Source, test: ast.expr, strict: bool = False) -> bool:
    """Whether a condition asks if a vector is zero or a cosine undefined.

    Args:
        source: The file.
        test: The condition.
        strict: Whether the compared value must be seen to be a norm; ``n == 0`` may count samples. In a condition
            with one entry per sample it is taken for one.
    """
    named = [value for part in ast.walk(test) if isinstance(part, ast.Name) for value in source.values(part)]
    masks = [
        value for value in named if isinstance(value, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.Call)
    ]
    for part in (part for whole in (test, *masks) for part in ast.walk(whole)):
        match part:
            case ast.Compare(left=left, comparators=[right]):
                for value, bound in ((left, right), (right, left)):
                    limit = source.number(bound)
                    if limit is not None and 0 <= limit <= LARGEST_GUARD and _may_vanish(source, value, strict):
                        return True
            case ast.UnaryOp(op=ast.Not(), operand=operand) if method(operand) == "any":
                return True
            case ast.Call() if called_name(part) in _UNDEFINED:
                return True
    return False


def _may_vanish(source: Source, node: ast.expr, strict: bool, hops: int = MAX_HOPS) -> bool:
    """Whether a value is a norm, a product of norms, a squared norm, or (not strict) goes by a name like theirs."""
    if is_norm(source, node) or _DENOMINATOR.fullmatch(own_name(node)):
        return True
    if isinstance(node, ast.Call) and called_name(node) == "count_nonzero":
        return True
    if not hops:
        return False
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return isinstance(node.op, ast.Mult) and all(_may_vanish(source, side, strict, hops - 1) for side in sides)
    products = (value for value in source.values(node) if isinstance(value, ast.BinOp))
    if any(_may_vanish(source, value, strict, hops - 1) for value in products):
        return True
    if strict:
        return False
    return is_sum(source, node) or is_gradient(source, node) or bool(_BRIEF_NORM.fullmatch(own_name(node)))


PITFALL = Pitfall(
    code="CS003",
    title="a cosine invented where it is undefined",
    why=(
        "The cosine of a zero vector does not exist. Written as 1 (or 0) it enters the mean as a measurement, and "
        "on a well-fitted network a large share of the samples is overwritten in this way."
    ),
    fix="keep NaN (or None), average with `nanmean` over the samples where it is defined, and report how many were not",
    wrong="import torch\n\ndef clean(n, cos):\n    return torch.where(n == 0, 1.0, cos)",
    right=(
        "import torch\n\ndef clean(n, cos):\n    cos = torch.where(n == 0, torch.nan, cos)\n"
        "    return cos.nanmean(), cos.isnan().sum()"
    ),
    find=find,
)
