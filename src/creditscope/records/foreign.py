"""One foreign file under import: typed reading, with file and field named in every refusal."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from creditscope.errors import BadFile

MAX_TEXT = 100
_T = TypeVar("_T")


@dataclass
class ForeignFile:
    """A parsed file and what had to be said about it.

    Args:
        name: The file's name, without its folder.
        content: The parsed JSON object.
        from_name: Facts that were read from the file name.
        problems: What was found odd but survivable.
    """

    name: str
    content: dict[str, Any]
    from_name: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def bad(self, where: str, message: str) -> BadFile:
        """The refusal of a field."""
        return BadFile(f"{self.name}: {where}: {message}")

    def lookup(self, keys: Sequence[str], read: Callable[[str, Any], _T]) -> _T | None:
        """A fact about the run from ``config`` or from the top of the file; None when neither states it."""
        config = self.content.get("config", {})
        if not isinstance(config, dict):
            raise self.bad("config", f"wanted an object, got {type_of(config)}")
        for key in keys:
            for prefix, place in (("config.", config), ("", self.content)):
                if place.get(key) is not None:
                    return read(prefix + key, place[key])
        return None

    def number(self, where: str, value: Any) -> float:
        """A number, finite or not; text and booleans are refused."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.bad(where, f"wanted a number, got {type_of(value)}")
        try:
            return float(value)
        except OverflowError:
            return math.inf

    def count(self, where: str, value: Any) -> int:
        """A whole number of at least 0."""
        number = self.number(where, value)
        if not (number.is_integer() and 0 <= number < 2**31):
            raise self.bad(where, f"wanted a whole number of at least 0, got {number:g}")
        return int(number)

    def text(self, where: str, value: Any) -> str:
        """A short text."""
        if not isinstance(value, str) or not value or len(value) > MAX_TEXT:
            raise self.bad(where, f"wanted a short text, got {type_of(value)}")
        return value

    def flag(self, where: str, value: Any) -> bool:
        """True or false."""
        if not isinstance(value, bool):
            raise self.bad(where, f"wanted true or false, got {type_of(value)}")
        return value

    def finite(self, where: str, value: Any, target: str, lost: dict[str, str]) -> float | None:
        """The number; None when it is null, or NaN or infinite, which is noted in ``lost`` under ``target``."""
        if value is None:
            return None
        number = self.number(where, value)
        if math.isfinite(number):
            return number
        lost[target] = str(number)
        return None

    def norm(self, where: str, value: Any, factor: float, target: str, lost: dict[str, str]) -> float | None:
        """A norm in our units; as ``finite``, and never negative."""
        norm = self.finite(where, value, target, lost)
        if norm is None:
            return None
        if norm < 0:
            raise self.bad(where, f"a norm cannot be negative, got {norm:g}")
        return self.finite(where, norm * factor, target, lost)


def type_of(value: Any) -> str:
    """What a value is, in words, for a message."""
    names = {dict: "an object", list: f"a list of {len(value) if isinstance(value, list) else 0}", type(None): "null"}
    shown = repr(value)
    return names.get(type(value), shown if len(shown) <= 40 else f"{shown[:37]}…")
