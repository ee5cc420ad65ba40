"""Evidence to ruling, seeds to cell, rows to history."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol import cases

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check
from creditscope.protocol.evidence import Evidence, Grade, History, Ruling, SeedOutcome, combine

NUMBERS = st.floats(-1e6, 1e6)


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["above", "below"]))
def test_a_ruling_follows_from_where_the_interval_lies(a, b, threshold, side):
    low, high = sorted((a, b))
    ruling = Evidence(None, low, high, Grade.BOUNDED).ruling(threshold, side)
    inside = [low, high, (low + high) / 2]
    fires = [x > threshold if side == "above" else x < threshold for x in inside]
    expected = Ruling.FIRES if all(fires) else Ruling.UNDECIDED if any(fires) else Ruling.PASSES
    assert ruling is expected


def test_missing_evidence_is_not_measured():
    assert Evidence.missing("why").ruling(1.0, "above") is Ruling.NOT_MEASURED


@pytest.mark.parametrize(
    ("fired", "first", "recovered"),
    [
        ("....", None, None),
        ("..xx", 2, None),
        (".x..", 1, 2),
        ("x.x.", 0, 3),
        ("x.xx", 0, None),
        ("", None, None),
    ],
)
def test_history(fired, first, recovered):
    history = History.of((epoch, mark == "x") for epoch, mark in enumerate(fired))
    assert (history.first, history.recovered) == (first, recovered)


def seed(value, grade=Grade.EXACT, threshold=50.0):
    evidence = Evidence.missing("nothing") if value is None else Evidence.point(value, grade)
    return SeedOutcome(1, "log", 9, evidence.ruling(threshold, "above"), evidence)


@pytest.mark.parametrize(
    ("values", "ruling", "value"),
    [
        ([1, 2, 3], Ruling.PASSES, 3),
        ([1, 60, 3], Ruling.FIRES, 60),
        ([1, None, 3], Ruling.UNDECIDED, 3),
        ([None, 60], Ruling.FIRES, 60),
        ([None, None], Ruling.NOT_MEASURED, None),
        ([math.inf, 2], Ruling.FIRES, None),
    ],
)
def test_any_fires_fires_all_pass_passes_else_undecided(values, ruling, value):
    seeds = [
        SeedOutcome(1, "log", 9, Ruling.FIRES, Evidence(None, math.inf, math.inf, Grade.EXACT))
        if v == math.inf
        else seed(v)
        for v in values
    ]
    evidence = combine(seeds, "above")
    assert evidence.ruling(50.0, "above") is ruling
    assert evidence.value == value


def test_the_grade_is_that_of_what_decided():
    assert combine([seed(60, Grade.EXACT), seed(1, Grade.PROXY)], "above").grade is Grade.EXACT
    assert combine([seed(2, Grade.EXACT), seed(1, Grade.PROXY)], "above").grade is Grade.PROXY


def test_an_exception_in_one_check_becomes_not_measured_with_its_message():
    class Broken(Check):
        name = "broken"

        def judge(self, cell):
            raise ZeroDivisionError("float division by zero")

    outcome = Broken(1.0).judge_safely(Cell((cases.run(),), "claim"))
    assert outcome.ruling is Ruling.NOT_MEASURED
    assert outcome.reason == "the check failed: ZeroDivisionError: float division by zero"
