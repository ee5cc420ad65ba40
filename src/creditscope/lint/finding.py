"""What the linter says: findings, and the files it could not read."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class Finding:
    """One pitfall at one place.

    Args:
        file: The file as it was named, with ``:cell N`` for a notebook.
        line: Line, from 1; inside the cell for a notebook.
        column: Column in characters, from 1.
        code: Code of the pitfall.
        message: What is wrong.
        fix: What to write instead.
    """

    file: str
    line: int
    column: int
    code: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.code} {self.message}"


@dataclass(frozen=True)
class Skipped:
    """One file or notebook cell that was not linted.

    Args:
        file: The file as it was named.
        why: The reason, in one line.
    """

    file: str
    why: str


@dataclass(frozen=True)
class LintReport:
    """The outcome of linting some files.

    Args:
        findings: Every pitfall found, in order of file and line.
        skipped: Files and cells that were not linted.
        linted: Files that were.
    """

    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    linted: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain lists and dictionaries."""
        return asdict(self)
