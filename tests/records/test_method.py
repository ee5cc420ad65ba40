"""The grammar of method names."""

import pytest
from cases.specs import methods
from hypothesis import given
from hypothesis import strategies as st

from creditscope.errors import BadInput
from creditscope.records import Method, parse_method
from creditscope.records.method import split_methods

PARSED = {
    "bp": Method("bp"),
    "fa": Method("fa"),
    "fa(exact_head=true)": Method("fa", options={"exact_head": "true"}),
    "kp(decay=0.1,mode=x,steps=3)-rms+pen0.1@fixed-feedback@last2": Method(
        "kp",
        credit_norm="rms",
        penalty=0.1,
        train_last=2,
        options={"decay": "0.1", "mode": "x", "steps": "3"},
        fixed_feedback=True,
    ),
    "kp@fixed-feedback": Method("kp", fixed_feedback=True),
    "kp@fixed-feedback@frozen": Method("kp", fixed_feedback=True, train_last=0),
    "fa-block": Method("fa-block"),
    "dfa": Method("dfa"),
    "dfa-rms": Method("dfa", credit_norm="rms"),
    "dfa-rms+pen0.01": Method("dfa", credit_norm="rms", penalty=0.01),
    "dfa-rms@frozen": Method("dfa", credit_norm="rms", train_last=0),
    "bp@readout": Method("bp", train_last=0, train_embedding=False),
    "bp@last2": Method("bp", train_last=2),
    "fa-block+pen1e-05@last3": Method("fa-block", penalty=1e-5, train_last=3),
    "bp+pen1e+20": Method("bp", penalty=1e20),
    "dfa+anchor1": Method("dfa", anchors=1),
    "dkp-rms+pen0.1+anchor12@fixed-feedback@last2": Method(
        "dkp", credit_norm="rms", penalty=0.1, anchors=12, train_last=2, fixed_feedback=True
    ),
    "anchor3": Method("anchor", anchors=3),
    "anchor3+pen0.1@frozen": Method("anchor", anchors=3, penalty=0.1, train_last=0),
}


@pytest.mark.parametrize(("name", "method"), PARSED.items(), ids=list(PARSED))
def test_names_and_what_they_mean(name, method):
    assert parse_method(name) == method
    assert str(method) == name


@given(methods())
def test_a_name_read_written_and_read_again_is_the_same_method(name):
    method = parse_method(name)
    assert parse_method(str(method)) == method
    assert parse_method(f"  {name}\n") == method


@given(st.floats(0, allow_infinity=False, exclude_min=True))
def test_no_digit_of_a_penalty_is_lost(penalty):
    assert parse_method(str(Method("dfa", penalty=penalty))).penalty == penalty


def test_an_anchor_alone_is_one_batch():
    assert str(parse_method("anchor")) == "anchor1"


def test_last_0_is_frozen():
    assert str(parse_method("dfa@last0")) == "dfa@frozen"


def test_a_rule_that_became_an_option_is_still_read():
    assert str(parse_method("fa-exact-head+pen0.1@frozen")) == "fa(exact_head=true)+pen0.1@frozen"


def test_a_comma_between_parentheses_belongs_to_its_method():
    assert split_methods("bp, kp(a=1,b=2)@frozen,dfa") == ["bp", "kp(a=1,b=2)@frozen", "dfa"]


FORM = "is not of the form RULE[(option=value,…)][-rms][+penλ][+anchorN][@fixed-feedback][@frozen|@readout|@lastK]"
REFUSED = {
    "kp(decay)": "method 'kp(decay)': wanted option=value between the parentheses, got 'decay'",
    "kp(a=1,a=2)": "method 'kp(a=1,a=2)': option a is given twice; give it once",
    "kp(a=../x)": "method 'kp(a=../x)': wanted option=value between the parentheses, got 'a=../x'",
    "dfa+pen0": "method 'dfa+pen0': the penalty must be a positive number, got '0'; write e.g. +pen0.01",
    "dfa+pen-1": "method 'dfa+pen-1': the penalty must be a positive number, got '-1'; write e.g. +pen0.01",
    "dfa+pen1e999": "method 'dfa+pen1e999': the penalty must be a positive number, got '1e999'; write e.g. +pen0.01",
    "dfa+pen1.2.3": "method 'dfa+pen1.2.3': the penalty must be a positive number, got '1.2.3'; write e.g. +pen0.01",
    "dfa+pen": f"method 'dfa+pen' {FORM}; did you mean",
    "dfa@frosen": f"method 'dfa@frosen' {FORM}; did you mean 'dfa-rms@frozen'",
    "dfa@last": f"method 'dfa@last' {FORM}; did you mean",
    "DFA": f"method 'DFA' {FORM}; known: anchor1, bp,",
    "": f"method '' {FORM}; known: anchor1, bp,",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items(), ids=list(REFUSED))
def test_refused_names_say_what_to_write(name, message):
    with pytest.raises(BadInput) as caught:
        parse_method(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
