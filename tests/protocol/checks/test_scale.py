"""Growth from all states, from some, from one, and from none."""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.scale import Scale
from creditscope.protocol.facts import Assumptions
from creditscope.records import EpochRow
from creditscope.records.measured import Norms


def judged(log, threshold=50.0, **assume):
    return Scale(threshold).judge(Cell((log,), "claim", assume=Assumptions.of(assume)))


def with_states(states, depth=4, epoch=5, before=()):
    """A log of one epoch (and perhaps an epoch 0) that holds these norms only."""
    log = cases.run(epochs=5)
    spec = log.spec.model_copy(update={"depth": depth, "origin": "import"})
    rows = [EpochRow(epoch=e, hidden=Norms(median=list(s))) for e, s in ((0, before), (epoch, states)) if s]
    return replace(log, header=log.header.model_copy(update={"spec": spec}), epochs=tuple(rows))


def test_exact_growth_is_the_largest_ratio_and_names_its_block():
    outcome = judged(with_states([2.0, 4.0, 400.0, 200.0, 300.0]))
    assert (outcome.ruling, outcome.evidence.grade, outcome.evidence.value) == ("fires", "exact", 100.0)
    assert "at block 1" in outcome.reason
    assert outcome.distance == 0.5


def test_at_the_threshold_it_passes():
    assert judged(with_states([1.0, 50.0, 50.0, 50.0, 50.0])).ruling == "passes"


def test_the_growth_that_was_measured_comes_before_the_states():
    log = cases.run(shape=replace(cases.ALIGNED, growth=(1.0, 80.0, 1.0, 1.0)))
    assert judged(log).evidence.value == pytest.approx(80.0)


def test_a_block_not_measured_leaves_a_pass_open_but_not_a_fire():
    log = cases.edit(cases.run(), lambda row: {"growth": [2.0, None, 3.0, 1.0]})
    assert (judged(log).ruling, judged(log).evidence.grade) == ("undecided", "bounded")
    assert judged(cases.edit(log, lambda row: {"growth": [2.0, None, 300.0, 1.0]})).ruling == "fires"
    assert judged(cases.edit(log, lambda row: {"growth": [None] * 4})).ruling == "not measured"


@pytest.mark.parametrize(
    ("last", "ruling"),
    [
        (9.0 * 60.0**4, "fires"),  # lower end 60
        (9.0 * 2.0, "passes"),  # upper end 2/0.064 = 31
        (9.0 * 100.0, "undecided"),
    ],
)
def test_both_ends_known_bound_the_growth(last, ruling):
    outcome = judged(with_states([9.0, None, None, None, last]))
    P = last / 9.0
    assert (outcome.ruling, outcome.evidence.grade) == (ruling, "bounded")
    assert outcome.evidence.interval == pytest.approx((P**0.25, P / 0.4**3))
    assert "no block shrinks the stream below 0.4×" in outcome.reason


def test_a_refuted_assumption_is_not_measured():
    outcome = judged(with_states([9.0, None, None, None, 9.0 * 0.4**4 * 0.99]))
    assert (outcome.ruling, outcome.evidence.grade) == ("not measured", "missing")
    assert "refutes the assumption" in outcome.reason
    assert judged(with_states([9.0, None, None, None, 9.0 * 0.4**4 * 0.99]), ratio=0.2).ruling == "passes"


def test_without_h0_the_initial_stream_bounds_from_above_only_and_never_fires():
    enormous = judged(with_states([None] * 4 + [1e12], before=[None] * 4 + [9.0]))
    assert (enormous.ruling, enormous.evidence.grade) == ("undecided", "proxy")
    assert enormous.evidence.interval == (None, pytest.approx(1e12 / (9.0 * 0.4**3)))
    assert "bounded from above only" in enormous.reason
    small = judged(with_states([None] * 4 + [18.0], before=[None] * 4 + [9.0]))
    assert (small.ruling, small.evidence.grade) == ("passes", "proxy")


def test_an_assumed_h0_is_named_and_still_never_fires():
    outcome = judged(with_states([None] * 4 + [1e12]), h0=9.0)
    assert outcome.ruling == "undecided"
    assert "the initial stream 9 (assumed)" in outcome.reason
    assert judged(with_states([None] * 4 + [1e12])).ruling == "not measured"


def test_blocks_are_the_layouts_default_or_assumed_and_named():
    log = with_states([None] * 4 + [100.0], depth=None, before=[None] * 4 + [9.0])
    default, assumed = judged(log), judged(log, blocks=2)
    assert "L = 4 (the penalty layout's default" in default.reason
    assert "L = 2 (assumed by the user" in assumed.reason
    assert assumed.evidence.high == pytest.approx(100 / 9 / 0.4)


def test_a_diverged_run_fires_and_names_its_epoch():
    log = cases.run()
    rows = list(log.epochs)
    rows[2] = rows[2].model_copy(update={"nonfinite": {"hidden.median[4]": "inf"}})
    outcome = judged(replace(log, epochs=tuple(rows)))
    assert (outcome.ruling, outcome.evidence.value, outcome.first_epoch) == ("fires", None, 2)
    assert "hidden.median[4] became inf at epoch 2" in outcome.reason


def test_a_live_row_with_a_bare_infinity_is_diverged_too():
    log = cases.edit(cases.run(), lambda row: {"hidden": Norms(median=[1.0, float("inf"), 1.0, 1.0, 1.0])})
    assert judged(log).ruling == "fires"


def test_a_run_that_ended_as_diverged_fires_whatever_its_last_row_holds():
    log = cases.run()
    end = log.end.model_copy(update={"status": "diverged", "epoch": 5, "reason": "the training loss became non-finite"})
    outcome = judged(replace(log, end=end))
    assert outcome.ruling == "fires"
    assert "the training loss became non-finite" in outcome.reason


@pytest.mark.parametrize("states", [[9.0, 0.0, 1.0, 1.0, 1.0], [0.0] * 5, [9.0, 9.0, 9.0, 9.0, None]])
def test_zero_and_missing_norms_are_not_measured(states):
    assert judged(with_states(states)).ruling == "not measured"


def test_ever_fired_and_recovered_are_history():
    log = cases.run()
    rows = [row.model_copy(update={"growth": [60.0 if row.epoch == 2 else 1.0] * 4}) for row in log.epochs]
    outcome = judged(replace(log, epochs=tuple(rows)))
    assert (outcome.ruling, outcome.first_epoch) == ("passes", 2)
    assert "fired from epoch 2, recovered by epoch 3" in outcome.reason


def test_the_worst_seed_decides_and_k_of_n_is_shown():
    logs = [
        cases.run(seed=s, shape=replace(cases.ALIGNED, growth=(g, 1, 1, 1))) for s, g in ((1, 2.0), (2, 70.0), (3, 3.0))
    ]
    outcome = Scale(50.0).judge(Cell(tuple(logs), "claim"))
    assert outcome.evidence.value == pytest.approx(70.0)
    assert "on 1 of 3 seeds" in outcome.reason
    assert "near threshold" in outcome.reason
    assert [s.ruling for s in outcome.per_seed] == ["passes", "fires", "passes"]
