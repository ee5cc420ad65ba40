"""The errors creditscope raises on purpose: each message says what was wanted, what came, and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class CreditscopeError(Exception):
    """Base of every error a user can cause; the command line prints it in one line and exits 2."""


class BadInput(CreditscopeError):
    """A value, a name or an option that cannot be used."""


class BadFile(CreditscopeError):
    """A file that is missing, truncated, malformed or from another program."""


class CannotWrite(CreditscopeError):
    """A folder or disk that takes no more: full, read-only or held by another writer."""


class NotMeasured(CreditscopeError):
    """A quantity that cannot be measured here; recorded as a status, never replaced by a number."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the tail of an error message: the nearest known words, or all of them.

    Args:
        word: What the user wrote.
        known: Every accepted word.
    """
    words = sorted(known)
    near = get_close_matches(word, words, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(repr(n) for n in near)}?"
    return f"known: {', '.join(words)}"
