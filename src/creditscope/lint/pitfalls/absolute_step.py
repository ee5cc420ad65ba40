"""CS008: a finite difference with a step of absolute size in float32."""

import ast
from collections.abc import Iterator

from creditscope.lint.calls import method, own_name
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.recognise import origins, quotient
from creditscope.lint.source import MAX_HOPS, Source, same
from creditscope.lint.text import parts

_SMALLEST, _LARGEST = 1e-10, 0.1
_FLOAT64 = {"torch.float64", "torch.double", "jax.numpy.float64", "numpy.float64"}
_JAX_FLOAT64 = "jax_enable_x64"
_LIBRARIES = ("torch", "numpy", "math", "jax", "scipy")
_Code = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_SCALES = {"scale", "scales", "norm", "norms", "rms", "std", "size", "radius", "magnitude", "median", "relative"}
_WRAPPERS = {"item", "mean", "sum", "detach", "double", "float", "cpu", "squeeze"}


def find(source: Source) -> Iterator[Hit]:
    """Find ``loss(h + 1e-3 * v) - loss(h)`` where the step does not follow the size of ``h``.

    Args:
        source: The file.
    """
    if not any(name.split(".")[0] in ("torch", "jax") for name in source.imports.values()):
        return  # numpy and plain Python compute in float64
    differences = [node for node in source.nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)]
    in_float64 = _float64_functions(source)
    reported: set[ast.AST] = set()
    for difference in differences:
        for side, other in ((difference.left, difference.right), (difference.right, difference.left)):
            for step in _steps(source, side, other):
                if step not in reported and source.function(step) not in in_float64:
                    reported.add(step)
                    yield Hit(
                        step,
                        "this step has an absolute size: in float32 it drowns in rounding once the state is large",
                    )
    for node in _steps_in_place(source, differences):
        if source.function(node) not in in_float64:
            yield Hit(node, "this step has an absolute size: in float32 it drowns in rounding once the value is large")


def _steps(source: Source, side: ast.expr, other: ast.expr) -> Iterator[ast.BinOp]:
    """The absolute steps at which one side of a difference evaluates a loss that the other holds without them."""
    evaluation, beside = _evaluation(source, side), _evaluation(source, other)
    if evaluation is None or (source.qualified(evaluation.func) or "").split(".")[0] in _LIBRARIES:
        return  # log(w + 1e-5) - log(v + 1e-5) guards a logarithm
    if beside is not None and not same(evaluation.func, beside.func):
        return
    if beside is None and not isinstance(other, ast.Name | ast.Attribute):
        return
    for given in [*evaluation.args, *(item.value for item in evaluation.keywords)]:
        for value in (given, *source.values(given)):
            if isinstance(value, ast.BinOp) and _is_absolute_step(source, value):
                yield value


def _evaluation(source: Source, node: ast.AST | None, hops: int = MAX_HOPS) -> ast.Call | None:
    """The function call whose value an expression is; ``f(x).item()`` is that of ``f``."""
    if node is None or not hops:
        return None
    if isinstance(node, ast.Call):
        if method(node) in _WRAPPERS and isinstance(node.func, ast.Attribute):
            return _evaluation(source, node.func.value, hops - 1)
        if isinstance(node.func, ast.Name) and node.func.id == "float" and node.args:
            return _evaluation(source, node.args[0], hops - 1)
        # A loss of a model: follow the argument that is itself a call of the perturbed state.
        inner = next((item for item in node.args if isinstance(item, ast.Call)), None)
        direct = any(_is_absolute_step(source, v) for item in node.args for v in (item, *source.values(item)))
        return node if direct or inner is None else _evaluation(source, inner, hops - 1)
    values = source.values(node)
    return _evaluation(source, values[0], hops - 1) if values else None


def _is_absolute_step(source: Source, node: ast.AST) -> bool:
    """Whether an expression is ``h ± c·v`` with a small literal ``c`` and nothing that follows the size of ``h``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
        return False
    sides = [(node.left, node.right)] + ([(node.right, node.left)] if isinstance(node.op, ast.Add) else [])
    return any(_is_absolute(source, state, term) for state, term in sides)


def _is_absolute(source: Source, state: ast.expr, term: ast.expr) -> bool:
    if not isinstance(state, ast.Name | ast.Attribute | ast.Subscript) or source.number(state) is not None:
        return False
    factors = _factors(source, term)
    if not any(_is_small(source, factor) for factor in factors):
        return False
    others = [factor for factor in factors if source.number(factor) is None]
    return not any(_follows(source, part, state) for factor in others for part in origins(source, factor))


def _factors(source: Source, node: ast.expr) -> list[ast.expr]:
    """The factors of a product; a unit direction ``v / v.norm()`` counts as ``v``."""
    factors, pending = [], [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            pending += [part.left, part.right]
        elif (division := quotient(source, part)) is not None:
            above, below = division
            pending.append(above)
            # v / v.norm() only makes a unit vector; any other divisor may carry the size of the state.
            factors += [item for item in below if not _is_norm_within(item, above)]
        else:
            factors.append(part)
    return factors


def _is_norm_within(divisor: ast.expr, product: ast.expr) -> bool:
    inner = divisor.func.value if isinstance(divisor, ast.Call) and isinstance(divisor.func, ast.Attribute) else None
    if inner is None or method(divisor) != "norm":
        return False
    return any(same(inner, part) for part in ast.walk(product) if isinstance(part, ast.expr))


def _is_small(source: Source, node: ast.expr) -> bool:
    value = source.number(node)
    return value is not None and _SMALLEST <= abs(value) <= _LARGEST


def _follows(source: Source, part: ast.AST, state: ast.expr) -> bool:
    """Whether a part of the step carries the size of the state, or goes by a name that says so."""
    parent = source.parents.get(part)
    is_method = isinstance(parent, ast.Call) and parent.func is part
    if isinstance(part, ast.Name | ast.Attribute) and not is_method and _SCALES.intersection(parts(own_name(part))):
        return True
    in_call = isinstance(parent, ast.Attribute | ast.Call)
    return isinstance(part, ast.expr) and same(part, state) and in_call and not _is_shape_only(source, part)


def _is_shape_only(source: Source, part: ast.AST) -> bool:
    """Whether an expression is used only for its shape, as in ``torch.randn_like(h)``."""
    parent = source.parents.get(part)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("shape", "device", "dtype", "size", "new_zeros", "numel")
    return isinstance(parent, ast.Call) and own_name(parent.func).endswith("_like")


def _float64_functions(source: Source) -> set[ast.AST]:
    """The functions (and the module) that compute in float64, get float64, or have it as default."""
    functions: set[ast.AST] = set()
    names: set[str] = set()
    for node in (node for node in source.nodes if _is_float64(source, node)):
        around = list(source.ancestors(node))
        functions.update(outer for outer in around if isinstance(outer, _Code))
        names.update(own_name(outer.func) for outer in around if isinstance(outer, ast.Call))
    by_default = "set_default_dtype" in names or _JAX_FLOAT64 in {
        node.value for node in source.nodes if isinstance(node, ast.Constant)
    }
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (by_default or node.name in names):
            functions.add(node)
    return functions | {source.tree} if by_default else functions


def _is_float64(source: Source, node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and method(node) == "double":
        return True
    return isinstance(node, ast.Attribute | ast.Name) and source.qualified(node) in _FLOAT64


def _steps_in_place(source: Source, differences: list[ast.BinOp]) -> Iterator[ast.AugAssign]:
    """Find ``p[i] += 1e-3`` where a difference of losses is then divided by that step."""
    divisors: dict[ast.AST, list[ast.expr]] = {}
    for difference in differences:
        match source.parents.get(difference):
            case ast.BinOp(op=ast.Div(), right=divisor):
                divisors.setdefault(source.function(difference), []).append(divisor)
    for node in source.nodes:
        if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add) or isinstance(node.target, ast.Name):
            continue
        steps = [factor for factor in _factors(source, node.value) if _is_small(source, factor)]
        below = [part for divisor in divisors.get(source.function(node), ()) for part in ast.walk(divisor)]
        if any(same(step, part) for step in steps for part in below):
            yield node


PITFALL = Pitfall(
    code="CS008",
    title="a finite-difference step of absolute size in float32",
    why=(
        "float32 carries seven digits: once the state is large, a step of 1e-3 rounds away and many loss changes are "
        "exactly 0. Even the TRUE gradient then seems to predict them badly."
    ),
    fix="scale the step with the state and compute in float64: `eps = 1e-3 * h.norm(dim=-1).median()`, `h.double()`",
    wrong="import torch\n\ndef change(loss, h, v):\n    return loss(h + 1e-3 * v) - loss(h)",
    right=(
        "import torch\n\ndef change(loss, h, v):\n    h, v = h.double(), v.double()\n"
        "    eps = 1e-3 * h.norm(dim=-1).median()\n    return loss(h + eps * v) - loss(h)"
    ),
    find=find,
)
