"""Numbers and names for a sentence."""

import re
from collections.abc import Sequence
from decimal import Decimal

_MOST_NAMES = 5


def sci(value: float) -> str:
    """A number for a sentence: 1.28e-5, 0.042, 3.

    Args:
        value: Any finite number.
    """
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def lam(penalty: float) -> str:
    """A penalty for a label, never with an exponent, as method names write it: λ = 0.0001, λ = 0.01, λ = 0.

    Args:
        penalty: λ.
    """
    return f"λ = {Decimal(repr(penalty)).normalize():f}"


def signed(number: float) -> str:
    """A number to one decimal, always with its sign, a true minus among them.

    Args:
        number: For example −4.9.
    """
    return f"{number:+.1f}".replace("-", "−")


def points_of_percent(difference: float) -> str:
    """A difference of fractions in percentage points.

    Args:
        difference: For example 0.031.
    """
    return f"{100 * difference:.1f} pp".replace("-", "−")


def hold(text: str) -> str:
    """Keep relations and units on one line with their numbers, by no-break spaces.

    Args:
        text: A caption.
    """
    return re.sub(r" (?=[=≥≤>+−]|pp\b|epochs\b)|(?<=[=≥≤>]) ", "\u00a0", text)


def listed(names: Sequence[str]) -> str:
    """Names for a sentence, the tail counted when there are many.

    Args:
        names: At least one.
    """
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    shown = _MOST_NAMES - 1
    return ", ".join([*names[:shown], f"{len(names) - shown} more"])
