"""Errors: one family, one line, and a hint."""

import pytest

from creditscope import errors
from creditscope.errors import CreditscopeError, did_you_mean

CHILDREN = ("BadInput", "BadFile", "CannotWrite", "NotMeasured")


@pytest.mark.parametrize("name", CHILDREN)
def test_every_error_is_of_the_family(name):
    with pytest.raises(CreditscopeError, match="what was wanted"):
        raise getattr(errors, name)("what was wanted")


def test_near_words_are_offered_best_first():
    assert did_you_mean("frozzen", ["frozen", "frozenset", "bp"]) == "did you mean 'frozen' or 'frozenset'?"


def test_at_most_three_words_are_offered():
    hint = did_you_mean("block", [f"block{i}" for i in range(9)])
    assert hint.count("'block") == 3


def test_without_a_near_word_all_are_listed_in_order():
    assert did_you_mean("zzz", {"fa", "bp"}) == "known: bp, fa"
