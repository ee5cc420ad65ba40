"""Is the reference in the run's dtype the true one?"""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.fidelity import FIDELITY_FLOOR, FidelityCheck, worst_fidelity
from creditscope.protocol.checks.version1 import FidelityAsLogged
from creditscope.records.measured import Fidelity


def judged(log):
    return FidelityCheck(FIDELITY_FLOOR).judge(Cell((log,), "claim"))


def with_fidelity(*median, **row):
    return cases.edit(cases.run(), None, fidelity=Fidelity(median=list(median), dtype="bfloat16"), **row)


@pytest.mark.parametrize(
    ("median", "ruling"),
    [
        ((1.0, 1.0, 1.0, 1.0, 0.9999), "passes"),
        ((1.0, 1.0, 0.99989, 1.0, 1.0), "fires"),
        ((1.0, None, 1.0, 1.0, 1.0), "undecided"),
        ((1.0, None, 0.5, 1.0, 1.0), "fires"),
        ((None,) * 5, "not measured"),
    ],
)
def test_any_state_below_the_floor_fires(median, ruling):
    assert judged(with_fidelity(*median)).ruling == ruling


def test_the_reason_names_state_and_dtype_and_what_to_do():
    reason = judged(with_fidelity(1.0, 1.0, 0.3, 1.0, 1.0)).reason
    assert "at state 2, in bfloat16" in reason
    assert "re-measure in float64" in reason


TF32 = Fidelity(median=[1.0, 1.0, 0.998, 1.0, 1.0], dtype="float32")


@pytest.mark.parametrize(
    ("provenance", "ruling"),
    [
        ({"device": "cuda"}, "undecided"),
        ({}, "undecided"),
        ({"device": "cpu"}, "fires"),
        ({"device": "cuda", "off_in_probes": "tf32 matmul, tf32 convolutions"}, "fires"),
        ({"device": "cuda", "off_in_probes": "nothing"}, "fires"),
    ],
)
def test_a_low_phi_that_tf32_may_have_made_asks_for_another_measurement(provenance, ruling):
    log = cases.edit(cases.run(), fidelity=TF32)
    log = replace(log, header=log.header.model_copy(update={"provenance": provenance}))
    outcome = judged(log)
    assert outcome.ruling == ruling
    assert ("the log does not say that TF32 was off in the probe" in outcome.reason) == (ruling == "undecided")
    if ruling == "undecided":
        assert outcome.settles == "probe the last checkpoint again with TF32 off (off_in_probes in the log says so)"
    assert FidelityAsLogged().judge(Cell((log,), "claim")).ruling == "fires"


def test_a_gradient_that_is_not_finite_counts_as_zero():
    log = with_fidelity(1.0, None, 1.0, 1.0, 1.0, nonfinite={"fidelity.median[1]": "nan"})
    assert (judged(log).ruling, judged(log).evidence.value) == ("fires", 0.0)
    assert worst_fidelity(log) == 0.0


def test_distance_and_nearness_are_taken_in_what_phi_misses():
    outcome = judged(with_fidelity(1.0, 1.0, 1.0, 1.0, 1 - 0.6e-4))
    assert outcome.distance == pytest.approx(1e-4 / 0.6e-4, rel=1e-6)
    assert "near threshold" in outcome.reason
    assert "near threshold" not in judged(with_fidelity(*[1 - 1e-14] * 5)).reason


def test_an_old_probe_is_a_proxy_with_its_epoch():
    log = cases.run()
    outcome = judged(replace(log, probes=tuple(p for p in log.probes if p.epoch < 5)))
    assert (outcome.ruling, outcome.evidence.grade) == ("undecided", "proxy")
    assert "probed at epoch 3, not at the last epoch 5" in outcome.reason


def test_no_probe_says_why():
    log = cases.run()
    missing = cases.edit(log, None, fidelity=None, not_measured={"fidelity": "the model refuses float64"})
    assert judged(missing).reason == "fidelity: the model refuses float64"
    assert judged(replace(log, probes=())).reason == "the log holds no fidelity probe"
    assert worst_fidelity(replace(log, probes=())) is None
