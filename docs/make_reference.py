"""The parts of the site that are read off the code: the verbs' help, the fields of a log's rows, the public names."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import creditscope
from creditscope.cli import app
from creditscope.records import rows
from creditscope.records.table import Table

ROW_KINDS: tuple[type[BaseModel], ...] = (rows.HeaderRow, rows.EpochRow, rows.ProbeRow, rows.EndRow)
_ENTRY = re.compile(r"^ {4}(?P<name>\w+): (?P<text>.*)$")
_WIDTH = 100
_QUOTE = r"\`\`"  # how the table renderer writes the double back-ticks of a docstring


def help_texts() -> dict[str, str]:
    """What ``creditscope VERB --help`` prints, by verb."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {name: _help(command, f"creditscope {name}") for name, command in group.commands.items()}


def _help(command: Any, name: str) -> str:
    with command.make_context(name, [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH) as ctx:
        return str(command.get_help(ctx)).strip()


def cli_page() -> str:
    """Every verb with its help."""
    parts = [f"## `creditscope {name}`\n\n```text\n{text}\n```" for name, text in help_texts().items()]
    return "\n\n".join(parts) + "\n"


def described(record: type[BaseModel]) -> dict[str, str]:
    """The fields of a record as its docstring describes them."""
    found: dict[str, str] = {}
    name = ""
    for line in (inspect.getdoc(record) or "").partition("Args:\n")[2].splitlines():
        entry = _ENTRY.match(line)
        if entry:
            name = entry["name"]
            found[name] = entry["text"]
        elif name and line.startswith(" " * 8):
            found[name] += " " + line.strip()
    return found


def parts_of(records: tuple[type[BaseModel], ...]) -> list[type[BaseModel]]:
    """The records inside these records, in order of first use, each once."""
    seen: list[type[BaseModel]] = []

    def look(record: type[BaseModel]) -> None:
        for field in record.model_fields.values():
            for inner in _records(field.annotation):
                if inner not in seen:
                    seen.append(inner)
                    look(inner)

    for record in records:
        look(record)
    return [record for record in seen if record not in records]


def _records(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _records(inner)


def rows_page() -> str:
    """Every row and every record inside one, field by field."""
    parts = ["## The rows"]
    parts += [_record(record, f'`"kind": "{record.model_fields["kind"].default}"`') for record in ROW_KINDS]
    parts.append("## What stands inside a row")
    parts += [_record(record, f"`{record.__name__}`") for record in parts_of(ROW_KINDS)]
    return "\n\n".join(parts) + "\n"


def _record(record: type[BaseModel], title: str) -> str:
    says = described(record)
    about = (inspect.getdoc(record) or "").split("\n\n")[0].replace("\n", " ")
    table = Table(
        ("field", "type", "meaning"),
        tuple(
            (name, _type(field), says.get(name, "")) for name, field in record.model_fields.items() if name != "kind"
        ),
    )
    return f"### {title}\n\n{about}\n\n{table.to_markdown().replace(_QUOTE, '`')}"


def _type(field: FieldInfo) -> str:
    inner = get_args(field.annotation)
    if type(None) not in inner:
        return _name(field.annotation)
    return " or ".join(_name(part) for part in inner if part is not type(None)) + ", optional"


def _name(annotation: Any) -> str:
    inner = get_args(annotation)
    origin = get_origin(annotation)
    if annotation in (type(None), None):
        return "null"
    if origin is UnionType or str(origin) == "typing.Union":
        return " or ".join(_name(part) for part in inner)
    if str(origin) == "typing.Literal":
        return " or ".join(repr(value).replace("'", '"') for value in inner)
    if str(origin) == "typing.Annotated":
        return _name(inner[0])
    if origin in (list, tuple):
        return f"list of {_name(inner[0])}"
    if origin is dict:
        return f"object of {_name(inner[1])}"
    return {"str": "text", "float": "number", "int": "whole number", "bool": "true or false"}.get(
        annotation.__name__, annotation.__name__
    )


def api_page() -> str:
    """The public names, for autodoc."""
    parts = []
    for name in sorted(set(creditscope.__all__) - {"__version__"}, key=str.lower):
        thing = getattr(creditscope, name)
        where = f"{thing.__module__}.{thing.__qualname__}"
        directive = "autofunction" if inspect.isfunction(thing) else "autoclass"
        members = "" if directive == "autofunction" or issubclass(thing, (BaseModel, Exception)) else "   :members:\n"
        parts.append(f"## `creditscope.{name}`\n\n```{{eval-rst}}\n.. {directive}:: {where}\n{members}```")
    return "\n\n".join(parts) + "\n"


def write_all(folder: Path) -> None:
    """Write the pages that the site includes.

    Args:
        folder: Where; made if need be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"cli.md": cli_page(), "rows.md": rows_page(), "api.md": api_page()}.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
