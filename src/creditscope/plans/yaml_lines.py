"""Read YAML as plain values, with the line of every key: bounded, no tags, no aliases, no repeated keys."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from creditscope.errors import BadFile
from creditscope.records.table import visible

# A spec of a thousand runs is under 4 KB. The bounds keep a hostile file from taking memory or time.
MAX_BYTES = 256 * 2**10
MAX_VALUES = 20_000
MAX_NESTING = 20
_YAML = "tag:yaml.org,2002:"
_TAGS: dict[type[yaml.Node], tuple[str, ...]] = {
    yaml.MappingNode: (_YAML + "map",),
    yaml.SequenceNode: (_YAML + "seq",),
    yaml.ScalarNode: tuple(_YAML + kind for kind in ("str", "int", "float", "bool", "null")),
}
Where = tuple[str | int, ...]


@dataclass(frozen=True)
class Located:
    """A YAML document and where its parts stand.

    Args:
        name: The file's name, without its folder.
        value: Mappings, lists, texts, numbers, true, false and null.
        lines: The line of each value, by its path of keys and indices.
    """

    name: str
    value: Any
    lines: dict[Where, int]

    def bad(self, where: Where, message: str) -> BadFile:
        """The refusal of a value: file, line and key named.

        Args:
            where: Path of keys and indices; the nearest known line is given.
            message: What was wanted, what came, what to do.
        """
        known = where
        while known and known not in self.lines:
            known = known[:-1]
        key = ".".join(map(str, where))
        said = f"{self.name}: line {self.lines.get(known, 1)}: {key + ': ' if key else ''}{message}"
        return BadFile(visible(said, keep=""))  # a quoted key may hold anything


def read_yaml(path: Path) -> Located:
    """Read a YAML file.

    Args:
        path: The file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{path.name}: cannot be read ({error.strerror}); check the path and its permissions") from None
    if len(data) > MAX_BYTES:
        raise BadFile(f"{path.name}: longer than {MAX_BYTES} bytes: not a sweep spec")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadFile(f"{path.name}: not UTF-8 text; save it as UTF-8") from None
    return parse_yaml(path.name, text)


def parse_yaml(name: str, text: str) -> Located:
    """Parse YAML text.

    Args:
        name: What to call it in messages.
        text: The document.
    """
    try:
        _check_bounds(name, text)
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise BadFile(f"{name}: empty; a sweep spec needs at least a preset or methods")
            lines: dict[Where, int] = {}
            return Located(name, _value(name, loader, node, (), lines), lines)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be parsed"
        _refuse(name, mark, f"not YAML: {what}; check the indentation and the quotes there")
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise BadFile(f"{name}: not YAML: {' '.join(str(error).split())[:160]}") from None


def _check_bounds(name: str, text: str) -> None:
    """Look at the events alone, which builds nothing: the parser keeps its own stack and does not recurse."""
    nesting = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            _refuse(name, event.start_mark, f"aliases are not read; write the values of *{event.anchor} out")
        nesting += isinstance(event, yaml.CollectionStartEvent)
        nesting -= isinstance(event, yaml.CollectionEndEvent)
        if nesting > MAX_NESTING:
            _refuse(name, event.start_mark, f"nested more than {MAX_NESTING} deep: not a sweep spec")
        if count > MAX_VALUES:
            _refuse(name, event.start_mark, f"more than {MAX_VALUES} values: not a sweep spec")


def _value(name: str, loader: yaml.SafeLoader, node: yaml.Node, where: Where, lines: dict[Where, int]) -> Any:
    lines[where] = node.start_mark.line + 1
    if node.tag not in _TAGS[type(node)]:
        shown = node.tag.replace(_YAML, "!!")
        _refuse(
            name, node.start_mark, f"wanted a text, a number, true or false, got {shown}; quote it, or drop the tag"
        )
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key, str) or key_node.tag != _YAML + "str":
                _refuse(name, key_node.start_mark, "wanted a word as a key; quote it if it is meant as text")
            if key in mapping:
                _refuse(name, key_node.start_mark, f"{key}: stands here a second time; keep one")
            mapping[key] = _value(name, loader, value_node, (*where, key), lines)
            lines[(*where, key)] = key_node.start_mark.line + 1
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_value(name, loader, each, (*where, index), lines) for index, each in enumerate(node.value)]
    try:
        return loader.construct_object(node)
    except (ValueError, LookupError):  # such as !!int x, or a number of ten thousand digits
        _refuse(name, node.start_mark, f"cannot be read as {node.tag.replace(_YAML, '')}; quote it if it is text")


def _refuse(name: str, mark: Any, message: str) -> NoReturn:
    line = f": line {mark.line + 1}" if mark is not None else ""
    raise BadFile(visible(f"{name}{line}: {message}", keep="")) from None
