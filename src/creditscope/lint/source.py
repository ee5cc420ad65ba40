"""A parsed file and what its names stand for: imports, scopes and simple assignments. Nothing is executed."""

import ast
import re
import warnings
from collections.abc import Callable, Hashable, Iterator
from functools import wraps
from itertools import zip_longest
from typing import Protocol

from creditscope.errors import BadFile

MAX_BYTES = 5_000_000
# A name assigned in many places is followed only so far: enough for real code, and no blow-up on generated code.
MAX_VALUES = 4
MAX_HOPS = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = ast.Module | Function | ast.ClassDef


def parse(text: str, filename: str) -> ast.Module:
    """Parse Python source, or say in one line why it cannot be.

    Args:
        text: The source.
        filename: Its name, for the message.
    """
    if len(text) > MAX_BYTES:
        raise BadFile(f"{filename}: more than {MAX_BYTES} characters; lint the measuring code in a file of its own")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return ast.parse(text)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        raise BadFile(f"{filename}: not Python: {error.msg}{where}; correct the syntax first") from None
    except (RecursionError, MemoryError):
        raise BadFile(f"{filename}: nested too deeply to be parsed; split its longest expression") from None
    except ValueError as error:
        raise BadFile(f"{filename}: not Python: {str(error).splitlines()[0]}; save it as plain UTF-8") from None


def split_lines(text: str) -> list[str]:
    """Lines as Python counts them; ``str.splitlines`` also breaks at form feeds and other marks."""
    return re.split(r"\r\n|\r|\n", text)


class Source:
    """One parsed file.

    Args:
        text: The source.
        filename: Its name, for messages.
        seeded_elsewhere: Whether another file of the same folder seeds the global generator.
    """

    def __init__(self, text: str, filename: str, seeded_elsewhere: bool = False) -> None:
        self.seeded_elsewhere = seeded_elsewhere
        self.tree = parse(text, filename)
        self.lines = split_lines(text)
        self.nodes = list(ast.walk(self.tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.imports = dict(_imported_names(self.nodes))
        self.classes = {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}
        self.memory: dict[Hashable, bool] = {}
        self._names: dict[ast.AST, dict[str, list[ast.expr | None]]] = {}
        self._attributes: dict[tuple[ast.ClassDef, str], list[ast.expr | None]] = {}
        for node in self.nodes:
            self._bind(node)

    def calls(self) -> Iterator[ast.Call]:
        """Every call in the file."""
        return (node for node in self.nodes if isinstance(node, ast.Call))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside out."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function(self, node: ast.AST) -> ast.AST:
        """The function (lambdas apart) that holds a node, or the module."""
        named = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((outer for outer in self.ancestors(node) if isinstance(outer, named)), self.tree)

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The class that holds a node, if any."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.ClassDef)), None)

    def qualified(self, node: ast.AST, hops: int = MAX_HOPS) -> str | None:
        """The full dotted name of an imported thing, such as ``torch.nn.functional.normalize``; None if it is not one.

        Args:
            node: A name or an attribute.
            hops: How many assignments such as ``cs = F.cosine_similarity`` may still be followed.
        """
        tail: list[str] = []
        while isinstance(node, ast.Attribute):
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        scope = self._binding_scope(node)
        if node.id in self.imports and not isinstance(scope, Function):
            return ".".join([self.imports[node.id], *reversed(tail)])
        value = self.only_value(node)
        if hops and isinstance(value, ast.Name | ast.Attribute):
            base = self.qualified(value, hops - 1)
            return ".".join([base, *reversed(tail)]) if base else None
        return None

    def values(self, node: ast.AST) -> list[ast.expr]:
        """The expressions assigned to a name or a ``self`` attribute, as far as the file shows them."""
        return [value for value in self._bound(node)[:MAX_VALUES] if value is not None]

    def only_value(self, node: ast.AST) -> ast.expr | None:
        """The expression assigned to a name, if there is exactly one and nothing else may bind it."""
        bound = self._bound(node)
        return bound[0] if len(bound) == 1 else None

    def number(self, node: ast.AST | None, hops: int = MAX_HOPS) -> float | None:
        """The number an expression stands for: a literal, a power of literals, or a name assigned one.

        Args:
            node: The expression.
            hops: How many names and signs may still be followed.
        """
        if isinstance(node, ast.Constant):
            return _as_float(node.value)
        if node is None or not hops:
            return None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self.number(node.operand, hops - 1)
            return None if value is None else -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base, exponent = self.number(node.left, hops - 1), self.number(node.right, hops - 1)
            return None if base is None or exponent is None else _power(base, exponent)
        return self.number(self.only_value(node), hops - 1)

    def _bound(self, node: ast.AST) -> list[ast.expr | None]:
        if isinstance(node, ast.Name):
            scope = self._binding_scope(node)
            return self._names[scope][node.id] if scope is not None else []
        if isinstance(node, ast.Attribute) and is_self(node.value):
            owner = self.enclosing_class(node)
            return self._attributes.get((owner, node.attr), []) if owner else []
        return []

    def _binding_scope(self, name: ast.Name) -> Scope | None:
        """The nearest scope that binds a name, by Python's rule: a method does not see its class's names."""
        inner = True
        for scope in self.ancestors(name):
            if not isinstance(scope, Scope):
                continue
            if name.id in self._names.get(scope, {}) and (inner or not isinstance(scope, ast.ClassDef)):
                return scope
            inner = False
        return None

    def _scope(self, node: ast.AST) -> Scope:
        return next((outer for outer in self.ancestors(node) if isinstance(outer, Scope)), self.tree)

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind_target(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._bind_target(target, value)
            case (
                ast.AugAssign(target=target)
                | ast.For(target=target)
                | ast.AsyncFor(target=target)
                | ast.comprehension(target=target)
                | ast.withitem(optional_vars=ast.expr() as target)
            ):
                self._bind_target(target, None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._bind_arguments(node)

    def _bind_target(self, target: ast.expr, value: ast.expr | None) -> None:
        match target:
            case ast.Name(id=name):
                self._names.setdefault(self._scope(target), {}).setdefault(name, []).append(value)
            case ast.Attribute(value=base, attr=attribute) if is_self(base):
                if owner := self.enclosing_class(target):
                    self._attributes.setdefault((owner, attribute), []).append(value)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                parts: list[ast.expr | None] = [None] * len(elements)
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(elements):
                    parts = list(value.elts)
                for element, part in zip(elements, parts, strict=True):
                    self._bind_target(element, part)
            case ast.Starred(value=inner):
                self._bind_target(inner, None)

    def _bind_arguments(self, function: Function) -> None:
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
        pairs = [
            *zip(positional, defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        pairs += [(extra, None) for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        for argument, default in pairs:
            self._names.setdefault(function, {}).setdefault(argument.arg, []).append(default)


class Question(Protocol):
    """A question about an expression, answered from the file; ``hops`` says how far names may still be followed."""

    def __call__(self, source: Source, node: ast.AST | None, hops: int = MAX_HOPS) -> bool:
        """Answer it."""


def remembered(question: Callable[[Source, ast.AST, int], bool]) -> Question:
    """Answer a question once per expression: without this, names that refer to each other cost exponential time.

    Args:
        question: The question, for an expression that is there and while hops remain; otherwise the answer is no.
    """

    @wraps(question)
    def ask(source: Source, node: ast.AST | None, hops: int = MAX_HOPS) -> bool:
        if node is None or not hops:
            return False
        key = (question, node, hops)
        if key not in source.memory:
            source.memory[key] = question(source, node, hops)
        return source.memory[key]

    return ask


def is_self(node: ast.AST) -> bool:
    """Whether a node is the name ``self`` or ``cls``."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def same(first: ast.AST, second: ast.AST) -> bool:
    """Whether two expressions are written the same, layout apart. Without recursion: trees may be deep."""
    pairs = zip_longest(ast.walk(first), ast.walk(second))
    return all(a is not None and b is not None and _same_node(a, b) for a, b in pairs)


def _same_node(a: ast.AST, b: ast.AST) -> bool:
    if type(a) is not type(b):
        return isinstance(a, ast.expr_context) and isinstance(b, ast.expr_context)
    return all(_same_field(getattr(a, field, None), getattr(b, field, None)) for field in a._fields)


def _same_field(x: object, y: object) -> bool:
    """Whether two fields agree as far as their own node shows: children are compared when their turn comes."""
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y)
    if isinstance(x, ast.AST) or isinstance(y, ast.AST):
        return isinstance(x, ast.AST) and isinstance(y, ast.AST)
    return type(x) is type(y) and x == y


def _imported_names(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                yield (item.asname, item.name) if item.asname else (item.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            # A relative module keeps its dots, so that a user's own ``.torch`` is never taken for torch.
            base = "." * node.level + (node.module or "")
            for item in node.names:
                yield item.asname or item.name, f"{base}.{item.name}"


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _power(base: float, exponent: float) -> float | None:
    try:
        value = base**exponent
    except (OverflowError, ZeroDivisionError):
        return None
    return value if isinstance(value, float) else None
