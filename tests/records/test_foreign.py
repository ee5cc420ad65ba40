"""Typed reading of a foreign file: what is taken, what is refused, and how it is named."""

import math

import pytest

from creditscope.errors import BadFile
from creditscope.records.foreign import ForeignFile, type_of

FILE = ForeignFile("run.json", {"a": 1, "config": {"a": 2, "b": None}})


def test_config_comes_before_the_top_of_the_file_and_null_is_absent():
    assert FILE.lookup(("a",), FILE.count) == 2
    assert FILE.lookup(("b", "c"), FILE.count) is None
    assert ForeignFile("x", {"b": 3, "config": {"b": None}}).lookup(("b",), FILE.count) == 3


def test_numbers_may_be_infinite_but_not_text():
    assert FILE.number("x", 10**400) == math.inf
    assert math.isnan(FILE.number("x", math.nan))
    for value in ("3", True, None, [1]):
        with pytest.raises(BadFile, match=r"run\.json: x: wanted a number"):
            FILE.number("x", value)


def test_what_is_not_finite_is_lost_and_noted():
    lost = {}
    assert FILE.finite("x", math.nan, "a", lost) is None
    assert FILE.norm("x", 1e308, 128.0, "b", lost) is None
    assert FILE.norm("x", 2.0, 128.0, "c", lost) == 256.0
    assert FILE.norm("x", None, 128.0, "d", lost) is None
    assert lost == {"a": "nan", "b": "inf"}


@pytest.mark.parametrize(
    ("read", "value"), [("count", -1), ("count", 1.5), ("text", ""), ("text", "x" * 101), ("flag", 1)]
)
def test_refusals(read, value):
    with pytest.raises(BadFile, match=r"run\.json: x: wanted"):
        getattr(FILE, read)("x", value)


def test_types_in_words():
    assert [type_of(value) for value in ({}, [1, 2], None, "hi")] == ["an object", "a list of 2", "null", "'hi'"]
    assert len(type_of("x" * 1000)) == 38
