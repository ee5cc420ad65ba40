"""Version 1, credit against its null: the cell statistic, Holm, statuses, and what cannot be decided."""

from dataclasses import replace

import numpy as np
import pytest
from protocol import cases

from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.version1.direction import Direction
from creditscope.records.measured import Cosines

DEEP = (2, 3, 4)


def judged(*logs):
    return Direction(0.05).judge(Cell(logs, "claim"))


def with_cosines(*deep, seed=42, k=cases.K, sd=cases.NULL_SD, keep=True, **row):
    """A run whose deep cosines are these; the first two states are aligned."""
    observed = [0.4, 0.4, *deep]
    rng = np.random.default_rng(seed)
    test = cases.null(observed, rng.normal(0, sd, (5, k)), keep)
    log = cases.edit(cases.run(seed=seed), lambda r: {"cosine": Cosines(mean=observed, status=["ok"] * 5)})
    return replace(log, probes=(log.probes[-1].model_copy(update={"null": test, **row}),))


@pytest.mark.parametrize(
    ("deep", "ruling"),
    [
        ((0.2, 0.2, 0.2), "passes"),
        ((0.0, 0.0, 0.0), "fires"),
        ((-0.2, -0.2, -0.2), "fires"),
        ((0.2, 0.0, 0.2), "undecided"),
        ((0.2, 0.04999, 0.2), "undecided"),  # p is tiny at sd .01, the cosine too small
        ((0.049, 0.049, 0.049), "fires"),
        ((0.05, 0.05, 0.05), "passes"),
    ],
)
def test_all_some_or_none(deep, ruling):
    assert judged(with_cosines(*deep, sd=0.01)).ruling == ruling


def test_block_l_acts_at_state_l_plus_one_and_the_first_block_is_not_deep():
    outcome = judged(with_cosines(0.2, 0.0, 0.2))
    assert [b["block"] for b in outcome.details["blocks"]] == [1, 2, 3]
    assert [b["state"] for b in outcome.details["blocks"]] == [2, 3, 4]
    assert "only blocks 1 and 3" in outcome.reason
    # Γ carried by states 0 and 1 alone does not help.
    assert judged(with_cosines(0.0, 0.0, 0.0)).ruling == "fires"


def test_a_large_cosine_within_its_null_does_not_count():
    # A null as wide as .3 makes .2 unremarkable.
    assert judged(with_cosines(0.2, 0.2, 0.2, sd=0.3)).ruling == "fires"


def test_the_cell_statistic_is_the_mean_over_seeds_with_independent_redraws():
    logs = [with_cosines(0.06, 0.07, 0.08, seed=s, sd=0.05) for s in (1, 2, 3)]
    outcome = judged(*logs)
    for block in outcome.details["blocks"]:
        state = block["state"]
        nulls = np.array([log.probes[-1].null.draws[state] for log in logs])
        seen = np.mean([log.probes[-1].null.observed[state] for log in logs])
        mean = [sum(column) / 3 for column in nulls.T]
        assert block["cosine"] == pytest.approx(seen)
        assert block["p"] == (1 + sum(1 for value in mean if value >= seen)) / (cases.K + 1)


def test_holm_decides_whether_any_block_has_it():
    # Raw p = .008 at one block only: below .01, but 3 × .008 is not.
    log = with_cosines(0.2, 0.0, 0.0)
    null = log.probes[-1].null
    draws = [list(values) for values in null.draws]
    draws[2] = [0.3] * 7 + [-0.3] * 992
    log = replace(log, probes=(log.probes[-1].model_copy(update={"null": null.model_copy(update={"draws": draws})}),))
    outcome = judged(log)
    assert outcome.details["blocks"][0]["p"] == 8 / 1000
    assert outcome.details["blocks"][0]["p_holm"] == pytest.approx(24 / 1000)
    assert outcome.ruling == "fires"


def test_bp_passes_by_construction_and_says_so():
    outcome = judged(cases.run("bp", shape=cases.BP))
    assert (outcome.ruling, outcome.evidence.grade) == ("passes", "exact")
    assert outcome.reason == "exact by construction at every deep block"


def test_an_exact_last_block_is_not_counted():
    shape = replace(cases.ALIGNED, cosine=(0.1, 0.0, 0.0, 0.0, 1.0), exact=(False,) * 4 + (True,))
    outcome = judged(cases.run("fa-block", shape=shape))
    assert outcome.ruling == "fires"
    assert "block 3 exact by construction, not counted" in outcome.reason


def test_zero_credit_fires():
    outcome = judged(cases.zero_credit(cases.run()))
    assert outcome.ruling == "fires"
    assert "credit is zero" in outcome.reason


def test_a_zero_reference_is_not_zero_credit():
    log = cases.edit(cases.zero_credit(cases.run()), lambda row: {"reference": None})
    assert judged(log).ruling == "not measured"


@pytest.mark.parametrize("status", ["no-credit-saved", "below-fidelity"])
def test_statuses_without_a_cosine_are_not_measured(status):
    log = cases.edit(cases.run(), lambda row: {"cosine": Cosines(mean=[None] * 5, status=[status] * 5)})
    outcome = judged(log)
    assert outcome.ruling == "not measured"
    assert status in outcome.reason


def test_no_null_is_not_measured_with_its_reason():
    log = cases.edit(cases.run(), None, null=None, not_measured={"null": "no feedback saved"})
    assert "no feedback saved" in judged(log).reason
    assert judged(replace(cases.run(), probes=())).ruling == "not measured"


def test_too_few_redraws_cannot_pass():
    outcome = judged(with_cosines(0.2, 0.2, 0.2, k=99))
    assert outcome.ruling == "not measured"
    assert "99 redraws cannot show p < 0.01" in outcome.reason
    assert judged(with_cosines(-0.2, -0.2, -0.2, k=99)).ruling == "fires"


def test_redraws_too_few_for_holm_do_not_fire_by_being_few():
    """With 199 redraws p ≥ 1/200, and Holm over three blocks can show no less than 3/200 whatever the credit does."""
    assert judged(with_cosines(0.2, 0.0, 0.0, k=199)).ruling == "undecided"
    assert judged(with_cosines(0.2, 0.0, 0.0, k=299)).ruling == "undecided"  # 3/300 is not below .01 either
    assert judged(with_cosines(0.2, 0.0, 0.0, k=399)).ruling == "undecided"  # here Holm can, and does
    assert judged(with_cosines(0.0, 0.0, 0.0, k=199)).ruling == "fires"


def test_one_seed_without_draws_uses_its_p_and_several_take_the_null_as_normal():
    assert judged(with_cosines(0.2, 0.2, 0.2, keep=False)).evidence.grade == "exact"
    outcome = judged(*(with_cosines(0.2, 0.2, 0.2, seed=s, keep=False) for s in (1, 2)))
    assert (outcome.ruling, outcome.evidence.grade) == ("passes", "proxy")
    assert "null taken as normal" in outcome.reason


def test_a_seed_that_was_not_probed_prevents_a_pass_but_not_a_fire():
    blind = replace(cases.run(seed=9), probes=())
    outcome = judged(with_cosines(0.2, 0.2, 0.2), blind)
    assert outcome.ruling == "undecided"
    assert f"not probed: {blind.name}" in outcome.reason
    assert judged(with_cosines(0.0, 0.0, 0.0), blind).ruling == "fires"


def test_an_old_probe_is_a_proxy():
    log = with_cosines(0.2, 0.2, 0.2)
    log = replace(log, probes=(log.probes[0].model_copy(update={"epoch": 3}),))
    outcome = judged(log)
    assert outcome.evidence.grade == "proxy"
    assert "probed at epoch 3" in outcome.reason


def test_skips_that_carry_exact_gradient_are_said():
    log = with_cosines(0.5, 0.5, 0.5)
    null = log.probes[-1].null
    shifted = null.model_copy(update={"mean": [0.3] * 5, "draws": [[v + 0.3 for v in d] for d in null.draws]})
    log = replace(log, probes=(log.probes[-1].model_copy(update={"null": shifted}),))
    assert "null mean +0.30: skips carry exact gradient" in judged(log).reason


def test_only_blocks_that_train_are_asked():
    log = cases.run("dfa@last1", shape=replace(cases.ALIGNED, cosine=(0.4, 0.4, 0.0, 0.0, 0.2)))
    outcome = judged(log)
    assert outcome.ruling == "passes"
    assert [b["block"] for b in outcome.details["blocks"]] == [3]


def test_one_block_has_no_deep_block():
    log = cases.run()
    spec = log.spec.model_copy(update={"depth": 1})
    assert judged(replace(log, header=log.header.model_copy(update={"spec": spec}))).reason == "no deep block trains"


def test_history_counts_from_the_third_firing_probe_in_a_row():
    log = cases.run(shape=replace(cases.ALIGNED, cosine=(0.4, 0.4, 0.0, 0.0, 0.0)))
    assert [p.epoch for p in log.probes] == [0, 1, 2, 3, 5]
    assert judged(log).first_epoch == 3
