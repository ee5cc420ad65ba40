"""Drift and representation advise; they never count."""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.advisory import DriftCheck, RepresentationCheck
from creditscope.records.measured import Drift


@pytest.mark.parametrize(("s", "ruling"), [(0.003, "passes"), (0.004, "fires")])
def test_drift_follows_its_law(s, ruling):
    at_128 = s / (s + 1 / 128)
    log = cases.edit(cases.run(), None, drift=Drift(s=s, at_128=at_128, state=2))
    outcome = DriftCheck(0.30).judge(Cell((log,), "claim"))
    assert (outcome.ruling, outcome.evidence.value) == (ruling, at_128)


@pytest.mark.parametrize(("last", "ruling"), [(0.31, "passes"), (0.30, "fires"), (0.29, "fires")])
def test_representation_fires_when_the_last_state_is_no_better_than_the_first(last, ruling):
    log = cases.edit(cases.run(), None, probe_accuracy=[0.30, 0.5, 0.5, 0.5, last])
    outcome = RepresentationCheck(0.0).judge(Cell((log,), "claim"))
    assert outcome.ruling == ruling
    assert outcome.evidence.value == pytest.approx(100 * (last - 0.30))


def test_they_are_never_in_the_verdict():
    shape = replace(cases.ALIGNED, probe_accuracy=(0.4,) * 4 + (0.1,))
    (claim,) = audit([*cases.cell("dfa", shape), *cases.opponents("dfa")]).claims
    advice = {o.name: (str(o.ruling), o.required) for o in claim.outcomes if not o.required}
    assert advice == {
        "drift": ("passes", False),
        "representation": ("fires", False),
        "idle": ("not measured", False),
    }
    assert claim.verdict.kind == "trustworthy"


def test_a_missing_end_is_not_measured():
    log = cases.edit(cases.run(), None, probe_accuracy=[None, 0.5], drift=Drift(s=None, at_128=None, state=2))
    for check in (RepresentationCheck(0.0), DriftCheck(0.3)):
        assert check.judge(Cell((log,), "claim")).ruling == "not measured"
