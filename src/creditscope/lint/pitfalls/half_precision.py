"""CS004: gradients measured in float16."""

import ast
from collections.abc import Iterator

from creditscope.lint.calls import argument, called_name, keyword, method, own_name
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.recognise import is_cosine_call, is_gradient, is_norm_call
from creditscope.lint.source import Source

_FLOAT16 = {"torch.float16", "torch.half", "numpy.float16", "numpy.half"}
_AUTOCASTS = {"torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast_mode.autocast"}
_SCALERS = {"torch.cuda.amp.GradScaler", "torch.amp.GradScaler", "torch.GradScaler", "torch.amp.grad_scaler.GradScaler"}
_HALF_PRECISIONS = (16, "16", "16-mixed", "16-true")
_GRADIENTS = {"torch.autograd.grad", "torch.func.grad", "torch.func.vjp", "torch.func.jacrev"}
_HOOKS = {"register_full_backward_hook", "retain_grad"}
_TAKES = {
    "clone",
    "detach",
    "flatten",
    "view",
    "reshape",
    "ravel",
    "abs",
    "mean",
    "std",
    "cpu",
    "float",
    "double",
    "numpy",
}
_INSTEAD = (
    "measure in float64 (or bfloat16, whose range is float32's): run the probe outside autocast on `model.double()`"
)


def find(source: Source) -> Iterator[Hit]:
    """Find float16 in a file that measures gradients.

    Args:
        source: The file.
    """
    sites = [node for node in source.nodes if _measures_gradient(source, node)]
    if not sites:
        return
    measuring = {source.function(site) for site in sites}
    for node in source.nodes:
        what = _float16(source, node)
        if what is None or not isinstance(node, ast.expr):
            continue
        if "autocast" in what and not _reaches(source, node, measuring):
            continue
        yield Hit(node, f"{what} in code that measures gradients: states above 65504 overflow, small gradients vanish")


def _measures_gradient(source: Source, node: ast.AST) -> bool:
    """Whether a node takes the norm or cosine of a gradient, asks autograd for one, or takes one out of ``.grad``."""
    if not isinstance(node, ast.Call):
        return False
    if source.qualified(node.func) in _GRADIENTS or method(node) in _HOOKS:
        return True
    if method(node) in _TAKES and isinstance(node.func, ast.Attribute) and own_name(node.func.value) == "grad":
        return True
    return (is_norm_call(source, node) or is_cosine_call(source, node)) and is_gradient(source, node)


def _reaches(source: Source, autocast: ast.AST, measuring: set[ast.AST]) -> bool:
    """Whether gradients are measured in the function that uses autocast, or in one that it calls."""
    function = source.function(autocast)
    names = {item.name for item in measuring if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
    called = {called_name(node) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return function in measuring or bool(names & called) or _decorates(source, autocast, measuring)


def _decorates(source: Source, node: ast.AST, functions: set[ast.AST]) -> bool:
    return any(
        node in item.decorator_list for item in functions if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _float16(source: Source, node: ast.AST) -> str | None:
    """In words, how a node brings in float16; None if it does not."""
    if isinstance(node, ast.Attribute | ast.Name) and source.qualified(node, hops=0) in _FLOAT16:
        return "float16" if _is_used(source, node) else None
    if not isinstance(node, ast.Call):
        return None
    name = source.qualified(node.func)
    off = keyword(node, "enabled")
    if isinstance(off, ast.Constant) and off.value is False:
        return None
    if name in _SCALERS:
        return "float16 training with a GradScaler"
    if name in _AUTOCASTS:
        return _autocast(source, node, name or "")
    if name is None and method(node) == "half" and not node.args:
        return "`.half()`"
    if name is None and method(node) == "astype" and _is_text(argument(node, 0, "dtype"), "float16"):
        return "float16"
    if _is_text(keyword(node, "fp16"), True):
        return "`fp16=True`"
    precision = keyword(node, "precision")
    if called_name(node) in ("Trainer", "Fabric") and isinstance(precision, ast.Constant):
        return f"`precision={precision.value!r}`" if precision.value in _HALF_PRECISIONS else None
    return None


def _autocast(source: Source, call: ast.Call, name: str) -> str | None:
    on_cuda = name == "torch.cuda.amp.autocast"
    dtype = argument(call, 1, "dtype")
    if dtype is not None:
        return "float16 autocast" if source.qualified(dtype) in _FLOAT16 else None
    # On a GPU autocast means float16 unless told otherwise; on a CPU it means bfloat16.
    device = argument(call, 0, "device_type")
    return "autocast (float16 by default)" if on_cuda or _is_text(device, "cuda") else None


def _is_text(node: ast.AST | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)


def _is_used(source: Source, node: ast.AST) -> bool:
    """Whether a dtype is put to use; comparing with it, listing it, or asking for its limits is not."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.keyword):
        parent = source.parents.get(parent)
    if isinstance(parent, ast.Call):
        name = source.qualified(parent.func) or called_name(parent)
        return (
            name not in _AUTOCASTS
            and not name.endswith(("finfo", "print"))
            and not called_name(parent).startswith("assert")
        )
    return isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.arguments)


PITFALL = Pitfall(
    code="CS004",
    title="gradients measured in float16",
    why=(
        "float16 ends at 65504: once the residual stream passes it the forward pass overflows, and a gradient below "
        "6e-8 is zero. bfloat16 has the range of float32 and keeps the cosine."
    ),
    fix=_INSTEAD,
    wrong="def probe(model, x):\n    model.half()\n    model(x).sum().backward()\n    return model.weight.grad.norm()",
    right=(
        "def probe(model, x):\n    model.double()\n    model(x).sum().backward()\n    return model.weight.grad.norm()"
    ),
    find=find,
)
