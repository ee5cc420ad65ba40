"""The errors creditscope raises on purpose: each message says what was wanted, what came, and what to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Argument:
    """An argument named in a message, as the caller knows it.

    Args:
        in_code: In a script, such as ``device='tpu'``.
        as_flag: On the command line, such as ``--device tpu``.
    """

    in_code: str
    as_flag: str

    def __str__(self) -> str:
        return self.in_code


def argument(name: str, value: object = None, *, flag: str | None = None) -> Argument:
    """An argument of a function.

    Args:
        name: Its name.
        value: Its value; None: the argument as such.
        flag: Its name on the command line, where that is another.
    """
    dashed = f"--{flag or name.replace('_', '-')}"
    shown = "" if value is None else repr(value)
    return Argument(f"{name}={shown}", dashed if value is None or value is True else f"{dashed} {value}")


def setting(key: str, value: object = None) -> Argument:
    """A setting of a run, one of ``changes=`` in a script.

    Args:
        key: Its name.
        value: Its value; None: the setting as such.
    """
    if value is None:
        return Argument(f"changes[{key!r}]", f"--set {key}")
    return Argument(f"changes[{key!r}]={value!r}", f"--set {key}={value}")


class CreditscopeError(Exception):
    """Base of every error a user can cause; the command line prints it in one line and exits 2.

    Args:
        parts: The message, in pieces: texts, and the arguments that it names.
        why: What is wrong alone, without what was called and what to do, for callers that say these themselves.
    """

    def __init__(self, *parts: str | Argument, why: str | None = None) -> None:
        super().__init__(*parts)
        self._why = why

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    @property
    def with_flags(self) -> str:
        """The message as the command line says it."""
        return "".join(part.as_flag if isinstance(part, Argument) else str(part) for part in self.args)

    @property
    def why(self) -> str:
        """What is wrong alone."""
        return str(self) if self._why is None else self._why


class BadInput(CreditscopeError):
    """A value, a name or an option that cannot be used."""


class BadFile(CreditscopeError):
    """A file that is missing, truncated, malformed or from another program."""


class CannotWrite(CreditscopeError):
    """A folder or disk that takes no more: full, read-only or held by another writer."""


class NotMeasured(CreditscopeError):
    """A quantity that cannot be measured here; recorded as a status, never replaced by a number."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the tail of an error message: the nearest known names, or all of them.

    Args:
        word: What the user wrote.
        known: Every accepted word.
    """
    names = sorted(known)
    near = get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(repr(n) for n in near)}?"
    return f"known: {', '.join(names)}"
