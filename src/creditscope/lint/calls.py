"""Reading a call and a name off the syntax tree."""

import ast

from creditscope.lint.source import Source


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of the first of these keyword arguments that a call has."""
    return next((item.value for item in call.keywords if item.arg in names), None)


def argument(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    """An argument by position or by name; None if absent or hidden behind a ``*``."""
    given = call.args[: position + 1]
    if len(given) > position and not any(isinstance(item, ast.Starred) for item in given):
        return given[position]
    return keyword(call, *names)


def method(node: ast.AST | None) -> str | None:
    """The method name of a call such as ``x.norm()``; None for any other expression."""
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def receiver(source: Source, call: ast.Call) -> ast.expr | None:
    """The object whose method is called; None where the call is of an imported function such as ``torch.norm``."""
    return call.func.value if isinstance(call.func, ast.Attribute) and not source.qualified(call.func) else None


def called_name(call: ast.Call) -> str:
    """The last part of the name that is called; empty where it has none."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def own_name(node: ast.AST) -> str:
    """The name a value goes by: of a variable, an attribute, or a string key."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Subscript(value=value):
            return own_name(value) if isinstance(value, ast.Name | ast.Attribute) else ""
    return ""
