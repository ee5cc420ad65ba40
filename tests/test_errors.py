"""Errors: one family, one line, and a hint."""

import pickle

import pytest

from creditscope import errors
from creditscope.errors import BadInput, CreditscopeError, argument, did_you_mean, setting

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


@pytest.mark.parametrize(
    ("named", "in_code", "as_flag"),
    [
        (argument("device", "tpu"), "device='tpu'", "--device tpu"),
        (argument("out"), "out=", "--out"),
        (argument("resume", True), "resume=True", "--resume"),
        (argument("data_dir", "x"), "data_dir='x'", "--data-dir x"),
        (argument("methods", flag="rules"), "methods=", "--rules"),
        (setting("lr", "nan"), "changes['lr']='nan'", "--set lr=nan"),
        (setting("lr"), "changes['lr']", "--set lr"),
    ],
)
def test_a_message_names_arguments_as_its_reader_knows_them(named, in_code, as_flag):
    error = BadInput("wrong: ", named, "; go on")
    assert str(error) == f"wrong: {in_code}; go on"
    assert error.with_flags == f"wrong: {as_flag}; go on"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.with_flags) == (str(error), error.with_flags)


def test_what_is_wrong_can_be_said_alone():
    assert BadInput("lr: too small; correct ", argument("changes"), why="lr: too small").why == "lr: too small"
    assert BadInput("lr: too small").why == "lr: too small"
