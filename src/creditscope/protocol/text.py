"""Numbers and lists as text, the same way in every reason."""

import math
from collections.abc import Iterable


def number(value: float | None) -> str:
    """A number in at most four significant digits."""
    if value is None:
        return "unknown"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}"
    return f"{value:.4g}"


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit; ``×`` stands right behind it."""
    if value is None or not unit:
        return number(value)
    return f"{number(value)}×" if unit == "×" else f"{number(value)} {unit}"


def span(low: float | None, high: float | None, unit: str) -> str:
    """An interval with its unit; an open end is written as such."""
    tail = "×" if unit == "×" else (f" {unit}" if unit else "")
    if low is None or math.isinf(low):
        return f"≤ {number(high)}{tail}"
    if high is None or math.isinf(high):
        return f"≥ {number(low)}{tail}"
    return f"[{number(low)}, {number(high)}]{tail}"


def listed(items: Iterable[object]) -> str:
    """Items with commas and a final ``and``."""
    texts = [str(item) for item in items]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def counted(n: int, noun: str) -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
