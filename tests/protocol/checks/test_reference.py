"""The reference: its norm or its gain, its units, and what a small one means."""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.reference import REFERENCE_FLOOR, ReferenceGain, ReferenceNorm
from creditscope.protocol.facts import Assumptions
from creditscope.records import EpochRow, ProbeSpec
from creditscope.records.measured import Fidelity, Norms

FLOOR = 1.28e-5


def norm(*logs, **assume):
    return ReferenceNorm(FLOOR).judge(Cell(logs, "claim", assume=Assumptions.of(assume)))


def gain(*logs):
    return ReferenceGain(FLOOR).judge(Cell(logs, "claim"))


def with_reference(values, depth=4, probe=None, source=None, **fields):
    log = cases.run(epochs=5)
    probe = ProbeSpec() if probe is None else probe
    spec = log.spec.model_copy(update={"depth": depth, "origin": "import", "probe": probe})
    header = log.header.model_copy(update={"spec": spec, "source": source})
    row = EpochRow(epoch=5, reference=Norms(median=list(values)), **fields)
    return replace(log, header=header, epochs=(row,), probes=())


def test_the_floor_is_the_published_one_in_sum_reduced_units():
    assert pytest.approx(1e-7 * 128, rel=1e-15) == REFERENCE_FLOOR


def test_only_the_last_state_counts():
    assert norm(with_reference([1e-9, 1e-9, 1e-9, 1e-9, 1e-4])).ruling == "passes"
    assert norm(with_reference([1.0, 1.0, 1.0, 1.0, 1.27e-5])).ruling == "fires"
    assert norm(with_reference([1.0, 1.0, 1.0, 1.0, FLOOR])).ruling == "passes"


def test_a_mean_reduced_log_is_converted_with_its_own_batch():
    mean = ProbeSpec(reduction="mean", batch=128)
    outcome = norm(with_reference([1.0] * 4 + [0.99e-7], probe=mean))
    assert (outcome.ruling, outcome.evidence.grade) == ("fires", "exact")
    assert outcome.evidence.value == pytest.approx(0.99e-7 * 128)
    assert norm(with_reference([1.0] * 4 + [0.99e-7], probe=ProbeSpec(reduction="mean", batch=1024))).ruling == "passes"


@pytest.mark.parametrize(("raw", "said"), [(1e-6, "N ≥ 13"), (5e-9, "N ≤ 2559")])
def test_unstated_units_are_a_proxy_with_the_range_of_n_for_which_it_holds(raw, said):
    outcome = norm(with_reference([1.0] * 4 + [raw], probe=ProbeSpec(reduction=None, batch=None)))
    assert outcome.evidence.grade == "proxy"
    assert f"holds for every probe size {said}" in outcome.reason
    # The oracle: the outcome changes exactly past the end of the range.
    n = int(said.split()[-1])
    assert ((raw * n < FLOOR) == (outcome.ruling == "fires"), (raw * (n + (1 if "≤" in said else -1)) < FLOOR)) == (
        True,
        outcome.ruling != "fires",
    )


def test_an_imported_log_was_already_multiplied():
    unknown = ProbeSpec(reduction=None, batch=None)
    outcome = norm(with_reference([1.0] * 4 + [3e-5], probe=unknown, source={"reference_units": "not stated"}))
    assert outcome.evidence.value == 3e-5


@pytest.mark.parametrize(
    ("g_2", "ruling"),
    [(FLOOR * 1.6, "passes"), (FLOOR * 1.4, "undecided"), (FLOOR / 1.4, "undecided"), (FLOOR / 1.6, "fires")],
)
def test_g_2_stands_in_for_the_last_with_a_zone_of_doubt(g_2, ruling):
    outcome = norm(with_reference([None, None, g_2, None, None]))
    assert (outcome.ruling, outcome.evidence.grade) == (ruling, "proxy")
    assert "g_2 stands in for g_L, to within ×1.5" in outcome.reason


def test_with_two_blocks_g_2_is_the_last():
    log = with_reference([None, None, 1e-4, None, None], depth=None)
    assert norm(log, blocks=2).evidence.interval is None
    assert "stands in" not in norm(log, blocks=2).reason


def test_small_because_fitted():
    outcome = norm(with_reference([1.0] * 4 + [1e-6], error=9e-4))
    assert "small because fitted" in outcome.reason
    assert "fitted" not in norm(with_reference([1.0] * 4 + [1e-6], error=2e-3)).reason


def test_the_gain_decides_in_standard_and_a_fitted_net_passes():
    fitted = cases.edit(cases.run(), lambda row: {"reference": Norms(median=[1e-9] * 5), "error": 1e-8})
    assert gain(fitted).ruling == "passes"
    collapsed = cases.edit(cases.run(), lambda row: {"gain": [1.0] * 4 + [1e-6]})
    assert (gain(collapsed).ruling, gain(collapsed).evidence.value) == ("fires", 1e-6)


def test_without_a_gain_the_norm_bounds_it_from_below():
    outcome = gain(with_reference([1.0] * 4 + [1e-4]))
    assert (outcome.ruling, outcome.evidence.grade) == ("passes", "proxy")
    assert outcome.evidence.low == pytest.approx(1e-4 / 2**0.5)
    assert gain(with_reference([1.0] * 4 + [1e-6])).ruling == "undecided"


def test_with_an_error_the_ratio_of_medians_stands_in():
    outcome = gain(with_reference([1.0] * 4 + [1e-6], error=0.5))
    assert (outcome.ruling, outcome.evidence.grade, outcome.evidence.value) == ("fires", "proxy", 2e-6)


def test_nothing_logged_is_not_measured():
    for judge in (norm, gain):
        assert judge(replace(cases.run(), epochs=(EpochRow(epoch=1),))).ruling == "not measured"


FAITHFUL = Fidelity(median=[1.0] * 5, dtype="float32")
UNFAITHFUL = Fidelity(median=[1.0, 1.0, 1.0, 1.0, 0.5], dtype="float16")


def collapsed(fidelity, value=1.2e-7):
    log = cases.edit(cases.run(), lambda row: {"reference": Norms(median=[value] * 5), "gain": [value] * 5})
    return cases.edit(log, fidelity=fidelity)


@pytest.mark.parametrize("judge", [norm, gain])
def test_the_words_follow_fidelity(judge):
    # N* = 1.2e-7/1e-8 = 12, so a clamped cosine over 128 samples is off by 128/12.
    assert "tiny but exact: a clamped cosine is off by ×10.67 at N=128" in judge(collapsed(FAITHFUL)).reason
    assert "not usable in this dtype (φ = 0.5); re-measure in float64" in judge(collapsed(UNFAITHFUL)).reason
    assert "whether it is still exact was not measured" in judge(collapsed(None)).reason


def test_seeds_that_agree_are_said_once_and_seeds_that_differ_by_name():
    same = norm(collapsed(FAITHFUL), collapsed(FAITHFUL))
    assert same.reason.count("tiny but exact") == 1
    other = replace(collapsed(UNFAITHFUL), header=cases.run(seed=7).header)
    mixed = norm(collapsed(FAITHFUL), other)
    assert "seed 42: tiny but exact" in mixed.reason
    assert "seed 7: not usable" in mixed.reason
