"""Numbers in words."""

import math

import pytest

from creditscope.protocol.text import counted, listed, number, quantity, span


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (5648.27, "5648"),
        (123456.0, "1.23e+05"),
        (0.0456, "0.0456"),
        (1.28e-5, "1.28e-05"),
        (0, "0"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_number(value, text):
    assert number(value) == text


def test_quantity_and_span():
    assert quantity(50.0, "×") == "50×"
    assert quantity(2.0, "pp") == "2 pp"
    assert quantity(2.0, "") == "2"
    assert span(1.0, 2.0, "pp") == "[1, 2] pp"
    assert span(None, 2.0, "×") == "≤ 2×"
    assert span(1.0, math.inf, "") == "≥ 1"


def test_lists():
    assert [listed(items) for items in ([], [1], [1, 2], [1, 2, 3])] == ["", "1", "1 and 2", "1, 2 and 3"]
    assert (counted(1, "seed"), counted(3, "seed")) == ("1 seed", "3 seeds")
