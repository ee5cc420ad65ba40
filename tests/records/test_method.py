"""The grammar of method names."""

import pytest
from cases.specs import methods
from hypothesis import given
from hypothesis import strategies as st

from creditscope.errors import BadInput
from creditscope.records import RULES, Method, parse_method
from creditscope.records.method import LOCAL_RULES

PARSED = {
    "bp": Method("bp"),
    "fa": Method("fa"),
    "fa-exact-head": Method("fa-exact-head"),
    "fa-block": Method("fa-block"),
    "dfa": Method("dfa"),
    "dfa-rms": Method("dfa", credit_norm="rms"),
    "dfa-rms+pen0.01": Method("dfa", credit_norm="rms", penalty=0.01),
    "dfa-rms@frozen": Method("dfa", credit_norm="rms", train_last=0),
    "bp@readout": Method("bp", train_last=0, train_embedding=False),
    "bp@last2": Method("bp", train_last=2),
    "fa-block+pen1e-05@last3": Method("fa-block", penalty=1e-5, train_last=3),
    "bp+pen1e+20": Method("bp", penalty=1e20),
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


def test_last_0_is_frozen():
    assert str(parse_method("dfa@last0")) == "dfa@frozen"


def test_local_rules_are_all_but_backprop():
    assert set(RULES) - set(LOCAL_RULES) == {"bp"}


FORM = "is not of the form RULE[-rms][+penλ][@frozen|@readout|@lastK]"
REFUSED = {
    "dfs": "unknown rule 'dfs' in method 'dfs'; did you mean 'dfa' or 'dfa-rms'?",
    "fa-blok": "unknown rule 'fa-blok' in method 'fa-blok'; did you mean 'fa-block'?",
    "xyz": "unknown rule 'xyz' in method 'xyz'; known: bp, dfa, dfa-rms, fa, fa-block, fa-exact-head",
    "bp-rms": "method 'bp-rms': -rms is defined for dfa only; write 'dfa-rms' or drop -rms",
    "fa-block-rms": "method 'fa-block-rms': -rms is defined for dfa only; write 'dfa-rms' or drop -rms",
    "dfa+pen0": "method 'dfa+pen0': the penalty must be a positive number, got '0'; write e.g. +pen0.01",
    "dfa+pen-1": "method 'dfa+pen-1': the penalty must be a positive number, got '-1'; write e.g. +pen0.01",
    "dfa+pen1e999": "method 'dfa+pen1e999': the penalty must be a positive number, got '1e999'; write e.g. +pen0.01",
    "dfa+pen1.2.3": "method 'dfa+pen1.2.3': the penalty must be a positive number, got '1.2.3'; write e.g. +pen0.01",
    "dfa+pen": f"method 'dfa+pen' {FORM}; did you mean",
    "dfa@frosen": f"method 'dfa@frosen' {FORM}; did you mean 'dfa-rms@frozen'",
    "dfa@last": f"method 'dfa@last' {FORM}; did you mean",
    "DFA": f"method 'DFA' {FORM}; known: bp,",
    "": f"method '' {FORM}; known: bp,",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items(), ids=list(REFUSED))
def test_refused_names_say_what_to_write(name, message):
    with pytest.raises(BadInput) as caught:
        parse_method(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
