"""What a pitfall is: a code, why it misleads, how to repair it, and a function that finds it in a parsed file."""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from creditscope.lint.source import Source


@dataclass(frozen=True)
class Hit:
    """A place where a pitfall was found.

    Args:
        node: The syntax node to point at.
        message: What is wrong here.
        fix: What to write instead, where it can be said more closely than the pitfall's own ``fix``.
    """

    node: ast.expr | ast.stmt
    message: str
    fix: str | None = None


@dataclass(frozen=True)
class Pitfall:
    """One mistake of measuring code.

    Args:
        code: Its code, for example ``CS001``.
        title: The mistake in a few words.
        why: What it does to the measurement.
        fix: What to write instead.
        wrong: A short example that has it.
        right: The same without it.
        find: Finds it in a parsed file.
    """

    code: str
    title: str
    why: str
    fix: str
    wrong: str
    right: str
    find: Callable[[Source], Iterable[Hit]]

    def explain(self) -> str:
        """The pitfall in words, with both examples."""
        parts = [f"{self.code}: {self.title}", self.why, f"Fix: {self.fix}"]
        parts += [f"Wrong:\n{_indent(self.wrong)}", f"Right:\n{_indent(self.right)}"]
        return "\n\n".join(parts)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.strip().splitlines())
