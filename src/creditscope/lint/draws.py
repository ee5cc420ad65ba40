"""Random tensors that a class keeps: which attributes hold one, and how each was drawn."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from creditscope.lint.calls import argument, called_name, keyword, method, own_name, receiver
from creditscope.lint.source import MAX_HOPS, Source, is_self
from creditscope.lint.text import like_feedback

_TORCH_DRAWS = {
    f"torch.{name}"
    for name in ("randn", "rand", "randn_like", "rand_like", "randint", "normal", "bernoulli", "randperm")
}
_NUMPY_DRAWS = {f"numpy.random.{name}" for name in ("randn", "rand", "normal", "uniform", "standard_normal", "choice")}
_IN_PLACE_DRAWS = {"normal_", "uniform_", "bernoulli_", "exponential_", "log_normal_", "cauchy_", "random_"}
_EMPTY = {"empty", "zeros", "empty_like", "Tensor", "FloatTensor"}
_SEEDS = {"torch.manual_seed", "torch.random.manual_seed", "torch.random.fork_rng", "numpy.random.seed"}
_NO_TENSOR = {"item", "size", "numel", "tolist", "dim", "stride"}
_PARAMETERS = {
    f"torch.nn.{name}" for name in ("Parameter", "ParameterList", "ParameterDict", "Buffer", "parameter.Parameter")
}
_SAVES = {"torch.save", "numpy.save", "numpy.savez", "pickle.dump", "safetensors.torch.save_file", "joblib.dump"}


@dataclass(frozen=True)
class Kept:
    """A random tensor that a class keeps as an attribute.

    Args:
        owner: The class.
        attribute: The attribute's name.
        node: Where it is kept.
        draw: The call that draws it.
        how: ``plain`` attribute, ``buffer``, ``hidden buffer`` (not persistent) or ``parameter``.
        method: The method in which it is drawn; empty in the class body.
    """

    owner: ast.ClassDef
    attribute: str
    node: ast.expr | ast.stmt
    draw: ast.Call
    how: str
    method: str

    @property
    def is_feedback(self) -> bool:
        """Whether the attribute is named like a feedback matrix."""
        return like_feedback(self.attribute)


def kept_draws(source: Source) -> Iterator[Kept]:
    """Find every random tensor that a class keeps.

    Args:
        source: The file.
    """
    for node in source.nodes:
        owner = source.enclosing_class(node)
        if owner is None:
            continue
        function = source.function(node)
        inside = function.name if isinstance(function, ast.FunctionDef) else ""
        for name, value, how in _keeps(source, owner, node):
            inner = _unwrapped(source, value)
            tensor = inner if inner is not None else value
            draw = drawn(source, tensor) or _filled_later(source, owner, name, tensor)
            if draw is not None and isinstance(node, ast.expr | ast.stmt):
                yield Kept(owner, name, node, draw, "parameter" if inner is not None else how, inside)


def _keeps(source: Source, owner: ast.ClassDef, node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """The attribute, value and manner of each statement that keeps something on an object of the class."""
    targets: list[ast.expr]
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            targets = [target]
        case ast.Call(func=ast.Attribute(value=ast.Attribute(value=base, attr=name), attr="append"), args=[value]):
            if is_self(base):
                yield name, value, "plain"
            return
        case ast.Call() if method(node) == "register_buffer":
            name_node, tensor = argument(node, 0, "name"), argument(node, 1, "tensor")
            if isinstance(name_node, ast.Constant) and isinstance(name_node.value, str) and tensor is not None:
                yield name_node.value, tensor, "hidden buffer" if _is_hidden(node) else "buffer"
            return
        case _:
            return
    for place in targets:
        in_body = isinstance(place, ast.Name) and source.parents.get(node) is owner
        if in_body or (isinstance(place, ast.Attribute) and is_self(place.value)):
            yield own_name(place), value, "plain"


def _unwrapped(source: Source, node: ast.expr) -> ast.expr | None:
    """The tensor inside ``nn.Parameter(...)``, ``nn.Buffer(...)`` or a list of them; None if it is not wrapped so."""
    if isinstance(node, ast.Call) and source.qualified(node.func) in _PARAMETERS and node.args:
        inner = node.args[0]
        element = _element(inner)
        return _unwrapped(source, element) or element if element is not None else inner
    return None


def drawn(source: Source, node: ast.AST | None, hops: int = 2 * MAX_HOPS) -> ast.Call | None:
    """The call that draws the tensor an expression makes; None if it makes no random tensor.

    Args:
        source: The file.
        node: The expression.
        hops: How many names, factors and calls may still be followed.
    """
    if node is None or not hops:
        return None
    match node:
        case ast.BinOp(left=left, right=right):
            return drawn(source, left, hops - 1) or drawn(source, right, hops - 1)
        case (
            ast.UnaryOp(operand=inner)
            | ast.Subscript(value=inner)
            | ast.Attribute(value=inner, attr="T" | "mT" | "data")
        ):
            return drawn(source, inner, hops - 1)
        case ast.Call():
            return _drawn_by_call(source, node, hops)
    if (element := _element(node)) is not None:
        return drawn(source, element, hops - 1)
    value = source.only_value(node) if isinstance(node, ast.Name) else None
    return drawn(source, value, hops - 1)


def _drawn_by_call(source: Source, call: ast.Call, hops: int) -> ast.Call | None:
    name = source.qualified(call.func)
    if name in _TORCH_DRAWS or name in _NUMPY_DRAWS:
        return call
    if name is not None and name.startswith("torch.nn.init."):
        return call
    if name is not None and name.startswith(("torch.", "numpy.")):
        return drawn(source, call.args[0], hops - 1) if call.args and not name.startswith("torch.nn.") else None
    inner = receiver(source, call)
    if inner is None or method(call) in _NO_TENSOR:
        return None
    return call if method(call) in _IN_PLACE_DRAWS else drawn(source, inner, hops - 1)


def _filled_later(source: Source, owner: ast.ClassDef, name: str, tensor: ast.expr) -> ast.Call | None:
    """The call elsewhere in the class that fills an empty tensor, such as ``nn.init.normal_(self.B)``."""
    made = source.only_value(tensor) if isinstance(tensor, ast.Name) else tensor
    if not isinstance(made, ast.Call) or called_name(made) not in _EMPTY:
        return None
    for call in (node for node in ast.walk(owner) if isinstance(node, ast.Call)):
        if (source.qualified(call.func) or "").startswith("torch.nn.init."):
            filled = argument(call, 0, "tensor")
        elif method(call) in _IN_PLACE_DRAWS:
            filled = receiver(source, call)
        else:
            continue
        if filled is not None and own_name(_without_data(filled)) in (name, own_name(tensor)):
            return call
    return None


def _without_data(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _element(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element) | ast.DictComp(value=element):
            return element
        case ast.List(elts=[element, *_]) | ast.Tuple(elts=[element, *_]) | ast.Dict(values=[element, *_]):
            return element
    return None


def is_seeded(draw: ast.Call) -> bool:
    """Whether a draw names its generator."""
    given = keyword(draw, "generator")
    return given is not None and not (isinstance(given, ast.Constant) and given.value is None)


def seeds_globally(source: Source) -> bool:
    """Whether the file, or another of its folder, seeds the global generator; a generator of its own does not."""
    return source.seeded_elsewhere or any(
        source.qualified(call.func) in _SEEDS or called_name(call) in ("seed_everything", "set_seed", "seed_all")
        for call in source.calls()
    )


def is_module(source: Source, owner: ast.ClassDef, hops: int = MAX_HOPS) -> bool:
    """Whether a class is known to be an ``nn.Module``, by its bases; a plain object saves whatever it holds.

    Args:
        source: The file.
        owner: The class.
        hops: How many base classes in the file may still be followed.
    """
    for base in owner.bases:
        name = source.qualified(base) or ""
        if name.startswith("torch.nn.") or name.endswith((".LightningModule", ".nn.Module")):
            return True
        local = source.classes.get(own_name(base))
        if hops and local is not None and local is not owner and is_module(source, local, hops - 1):
            return True
    return False


def is_saved_by_class(source: Source, kept: Kept) -> bool:
    """Whether the class saves an attribute after all: by a state-dict method, or as a buffer or parameter later on."""
    for node in ast.walk(kept.owner):
        if isinstance(node, ast.FunctionDef) and ("state_dict" in node.name or "extra_state" in node.name):
            if any(isinstance(part, ast.Attribute) and part.attr == kept.attribute for part in ast.walk(node)):
                return True
        elif isinstance(node, ast.Call) and method(node) in ("register_buffer", "register_parameter"):
            name = argument(node, 0, "name")
            if isinstance(name, ast.Constant) and name.value == kept.attribute and not _is_hidden(node):
                return True
        elif (
            isinstance(node, ast.Assign)
            and _unwrapped(source, node.value) is not None
            and any(own_name(target) == kept.attribute for target in node.targets)
        ):
            return True
    return False


def saved_by_hand(source: Source) -> set[str]:
    """The attributes that the file passes to ``torch.save`` and its like."""
    saves = [call for call in source.calls() if source.qualified(call.func) in _SAVES]
    return {part.attr for call in saves for part in ast.walk(call) if isinstance(part, ast.Attribute)}


def _is_hidden(call: ast.Call) -> bool:
    persistent = argument(call, 2, "persistent")
    return isinstance(persistent, ast.Constant) and persistent.value is False
