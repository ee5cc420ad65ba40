"""Lint sources, files and folders."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from creditscope.errors import BadFile
from creditscope.lint.finding import Finding, LintReport, Skipped
from creditscope.lint.notebook import read_notebook
from creditscope.lint.pitfall import Hit
from creditscope.lint.pitfalls import PITFALLS
from creditscope.lint.source import MAX_BYTES, Source

_IGNORE = re.compile(r"#\s*creditscope:\s*ignore\[([^\]]*)\]")
# As written by a script that seeds everything before it builds its nets; ``generator.manual_seed`` is another matter.
_SEEDS = re.compile(
    r"(?m)^[^#\n]*(torch(\.random|\.cuda)?\.manual_seed(_all)?|np\.random\.seed|numpy\.random\.seed|(?<![.\w])(seed_everything|"
    r"set_seed|set_random_seed|seed_all|fix_seed))\s*\("
)
_MOST_SEARCHED = 2000
_PYTHON, _NOTEBOOK = (".py", ".pyw"), ".ipynb"


def lint_source(source: str, filename: str = "<source>", seeded_elsewhere: bool = False) -> list[Finding]:
    """Find the pitfalls in Python source, without running it.

    Args:
        source: The source.
        filename: The name to report.
        seeded_elsewhere: Whether another file of the same folder seeds the global generator.

    Returns:
        The findings in order of line; a line with ``# creditscope: ignore[CODE]`` has none of that code.

    Raises:
        BadFile: If the source cannot be parsed.
    """
    try:
        parsed = Source(source, filename, seeded_elsewhere)
        found = {
            Finding(filename, *_place(parsed, hit), code, hit.message, hit.fix or pitfall.fix)
            for code, pitfall in PITFALLS.items()
            for hit in pitfall.find(parsed)
            if not _is_ignored(parsed, hit, code)
        }
    except (RecursionError, MemoryError):
        raise BadFile(f"{filename}: nested too deeply to be linted; split its longest expression") from None
    return sorted(found)


def lint_files(paths: Iterable[str | os.PathLike[str]]) -> LintReport:
    """Lint files and folders; what cannot be read or parsed is named, and the rest is still linted.

    Args:
        paths: Python files, notebooks, or folders to walk.
    """
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    linted: list[str] = []
    seen: set[str] = set()
    for path in paths:
        seeded = _sets_a_seed(Path(path))
        for file in _files(Path(path), skipped):
            real = os.path.realpath(file)
            if real in seen:
                continue
            seen.add(real)
            name = _display(file)
            try:
                text = _read(file, name)
                is_notebook = file.suffix == _NOTEBOOK
                findings += (
                    _lint_notebook(text, name, skipped, seeded) if is_notebook else lint_source(text, name, seeded)
                )
            except BadFile as error:
                skipped.append(Skipped(name, str(error).removeprefix(f"{name}: ")))
            else:
                linted.append(name)
    return LintReport(tuple(sorted(findings)), tuple(skipped), tuple(linted))


def _lint_notebook(text: str, name: str, skipped: list[Skipped], seeded: bool) -> list[Finding]:
    notebook = read_notebook(text, name)
    skipped += [Skipped(f"{name}:cell {cell}", why) for cell, why in notebook.unreadable]
    findings = []
    for found in lint_source(notebook.text, name, seeded):
        cell, line = notebook.places[found.line - 1]
        findings.append(Finding(f"{name}:cell {cell}", line, found.column, found.code, found.message, found.fix))
    return findings


def _sets_a_seed(path: Path) -> bool:
    """Whether any file of the folder, or of the folder that a file lies in, seeds the global generator."""
    folder = path if path.is_dir() else path.parent
    for number, file in enumerate(_files(folder, [])):
        if number == _MOST_SEARCHED:
            return False
        with suppress(BadFile):
            if _SEEDS.search(_read(file, file.name)):
                return True
    return False


def _place(source: Source, hit: Hit) -> tuple[int, int]:
    """Line and column of a hit; syntax trees count columns in UTF-8 bytes."""
    line = source.lines[hit.node.lineno - 1]
    before = line.encode("utf-8", "surrogatepass")[: hit.node.col_offset]
    return hit.node.lineno, len(before.decode("utf-8", "replace")) + 1


def _is_ignored(source: Source, hit: Hit, code: str) -> bool:
    """Whether a comment on one of the lines of a hit names its code."""
    last = hit.node.end_lineno or hit.node.lineno
    for line in source.lines[hit.node.lineno - 1 : last]:
        for listed in _IGNORE.findall(line):
            if code in (word.strip().upper() for word in listed.split(",")):
                return True
    return False


def _files(path: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """The files a path stands for: itself, or all Python files and notebooks under a folder."""
    if "\0" in str(path):
        skipped.append(Skipped(_display(path), "no file can have a null byte in its name"))
        return
    if not path.is_dir():
        if path.suffix in (*_PYTHON, _NOTEBOOK):
            yield path
        else:
            skipped.append(Skipped(_display(path), "wanted a .py file, an .ipynb notebook or a folder"))
        return

    def unreadable(error: OSError) -> None:
        skipped.append(Skipped(_display(Path(error.filename)), f"cannot be read ({error.strerror})"))

    empty = True
    for folder, names, files in os.walk(path, onerror=unreadable):
        names[:] = sorted(name for name in names if not _is_foreign(Path(folder, name)))
        for file in sorted(files):
            if Path(file).suffix in (*_PYTHON, _NOTEBOOK):
                empty = False
                yield Path(folder, file)
    if empty:
        skipped.append(Skipped(_display(path), "holds no .py file and no .ipynb notebook"))


def _is_foreign(folder: Path) -> bool:
    """Whether a folder holds no code of the user's own: hidden, a cache, or a virtual environment."""
    return folder.name.startswith(".") or folder.name == "__pycache__" or (folder / "pyvenv.cfg").exists()


def _read(path: Path, name: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadFile(f"{name}: not a regular file; save the code to a file first")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{name}: cannot be read ({error.strerror}); check the path and its permissions") from None
    if len(data) > MAX_BYTES:
        raise BadFile(f"{name}: larger than {MAX_BYTES} bytes; lint the measuring code in a file of its own")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{name}: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _display(path: Path) -> str:
    """A path that can be printed on one line, whatever bytes are in it."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(path))
