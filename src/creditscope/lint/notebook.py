"""Notebooks: the code cells of a ``.ipynb`` file joined into one source, with the way back to cell and line."""

import json
import re
from dataclasses import dataclass

from creditscope.errors import BadFile
from creditscope.lint.source import parse, split_lines

_MAGIC = re.compile(r"^(\s*)[%!?].*$")
# Cell magics after which the cell is still Python; after any other it is not.
_PYTHON_CELL = re.compile(r"^\s*%%(time|timeit|capture|prun)\b")


@dataclass(frozen=True)
class Notebook:
    """The Python of a notebook.

    Args:
        text: All code cells, one after the other.
        places: Cell number and line in the cell, for each line of ``text``.
        unreadable: Cell number and reason of each code cell that was left out.
    """

    text: str
    places: tuple[tuple[int, int], ...]
    unreadable: tuple[tuple[int, str], ...]


def read_notebook(text: str, filename: str) -> Notebook:
    """Read the code cells of a notebook; a cell that is not Python is left out and named.

    Args:
        text: The file's content.
        filename: Its name, for messages.
    """
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    unreadable: list[tuple[int, str]] = []
    for number, source in enumerate(_code_cells(text, filename), start=1):
        try:
            cell = _as_python(source, f"{filename}:cell {number}")
        except BadFile as error:
            unreadable.append((number, str(error).split(": ", 1)[1]))
            continue
        lines += cell
        places += [(number, line) for line in range(1, len(cell) + 1)]
    return Notebook("\n".join(lines), tuple(places), tuple(unreadable))


def _code_cells(text: str, filename: str) -> list[str]:
    try:
        data = json.loads(text)
        cells = data["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        return [_cell_text(source) for source in sources]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = (str(error) or type(error).__name__).splitlines()[0]
        raise BadFile(f"{filename}: not a notebook ({problem}); save it again in notebook format 4") from None


def _cell_text(source: object) -> str:
    """A cell's text: one string, or a list of lines."""
    lines = source if isinstance(source, list) else [source]
    texts = [line for line in lines if isinstance(line, str)]
    if len(texts) != len(lines):
        raise TypeError("the source of a cell is no text")
    return "".join(texts)


def _as_python(source: str, where: str) -> list[str]:
    """The lines of a cell, shell and magic lines replaced by ``pass``."""
    lines = split_lines(source)
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("%%") and not _PYTHON_CELL.match(first):
        return ["" for _ in lines]
    try:
        parse(source, where)
    except BadFile:
        # Only now: a line of a plain Python expression may begin with % as well.
        lines = [_MAGIC.sub(r"\1pass", line) for line in lines]
        parse("\n".join(lines), where)
    return lines
