"""Ranges of thresholds, checked by judging again on both sides of every end."""

import math
from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.sensitivity import gaps

SETS = {
    "healthy": cases.healthy("dfa"),
    "collapsed": [*cases.cell("dfa", cases.COLLAPSED), *cases.opponents("dfa"), *cases.control()],
    "one weak point": [
        *cases.cell("dfa", replace(cases.ALIGNED, growth=(60.0, 1, 1, 1))),
        *cases.opponents("dfa"),
    ],
    "undecided": [
        *cases.cell("dfa", replace(cases.ALIGNED, accuracy=0.375, cosine=(0.4, 0.4, 0.2, 0.0, 0.2)), spread=0.03),
        *cases.opponents("dfa"),
        *cases.control(),
    ],
}


def summary(logs, **thresholds):
    claim = audit(logs, thresholds=thresholds).claims[0]
    return str(claim.verdict.kind), {outcome.name: str(outcome.ruling) for outcome in claim.outcomes}


def beside(end, towards):
    """A threshold a little past an end, or just within it."""
    step = 1e-6 * max(1e-6, abs(end))
    return end + step * towards


@pytest.mark.parametrize("name", SETS)
def test_outcome_and_verdict_stay_within_their_range_and_change_past_it(name):
    logs = SETS[name]
    claim = audit(logs).claims[0]
    verdict, outcomes = summary(logs)
    allowed = {
        "learning": (0, 100),
        "scale": (0, math.inf),
        "reference": (0, math.inf),
        "fidelity": (0, 1),
        "movement": (0, math.inf),
        "direction": (-1, 1),
    }
    tried = 0
    for stay in claim.stays:
        for (low, high), what in ((stay.outcome, "outcome"), (stay.verdict, "verdict")):
            for end, outward in ((low, -1), (high, +1)):
                if end is None:
                    continue
                for towards, same in ((-outward, True), (outward, False)):
                    threshold = beside(end, towards)
                    floor, ceiling = allowed.get(stay.check, (-math.inf, math.inf))
                    if not floor <= threshold <= ceiling:
                        continue
                    new_verdict, new_outcomes = summary(logs, **{stay.check: threshold})
                    got = (
                        new_outcomes[stay.check] == outcomes[stay.check]
                        if what == "outcome"
                        else new_verdict == verdict
                    )
                    assert got is same, (stay, what, threshold)
                    tried += 1
    assert tried >= 8


def test_with_two_firing_checks_no_single_threshold_saves_the_claim():
    claim = audit(SETS["collapsed"]).claims[0]
    assert {stay.verdict for stay in claim.stays} == {(None, None)}


def test_the_gap_lies_between_the_healthiest_failing_and_the_worst_passing_run():
    grown = [
        cases.run("dfa", s, replace(cases.ALIGNED, growth=(g, 1, 1, 1)))
        for s, g in ((1, 60.0), (2, 90.0), (3, 20.0), (4, 3.0))
    ]
    (claim,) = audit(grown, baseline=0.3).claims
    found = {gap.check: gap for gap in gaps([("dfa", claim.outcomes)])}
    assert (found["scale"].failing, found["scale"].passing) == pytest.approx((60.0, 20.0))
    assert found["scale"].width == pytest.approx(3.0)
    assert found["scale"].failing_log == grown[0].name
    assert found["scale"].passing_log == grown[2].name
    assert (found["movement"].failing, found["movement"].width) == (None, None)


def test_a_check_that_pools_its_seeds_has_one_value_a_cell():
    better, worse = replace(cases.ALIGNED, accuracy=0.50), replace(cases.ALIGNED, accuracy=0.36)
    logs = [*cases.cell("dfa", better), *cases.cell("fa", worse), *cases.opponents("dfa"), *cases.opponents("fa")]
    judged = [cell for cell in audit([*logs, *cases.control()]).claims if cell.cell.method != "bp"]
    found = {gap.check: gap for gap in gaps([(cell.cell.label, cell.outcomes) for cell in judged])}
    assert (found["depth"].passing_log, found["depth"].failing_log) == ("dfa", "fa")
    assert found["depth"].passing == pytest.approx(100 * (0.50 - 0.353), abs=1e-9)
    assert found["depth"].failing == pytest.approx(100 * (0.36 - 0.353))
    assert found["depth"].width == pytest.approx(14.0)
