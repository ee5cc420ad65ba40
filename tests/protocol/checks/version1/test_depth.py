"""Version 1, the margin over the frozen twin: pairing, intervals, grades, and what stands beside it."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from protocol import cases
from scipy import stats

from creditscope.protocol import audit
from creditscope.protocol.inference import read_bits
from creditscope.records.rows import EpochRow


def depth(logs, protocol="standard@1", **options):
    claim = audit(logs, protocol, **options).claims[0]
    return next(outcome for outcome in claim.outcomes if outcome.name == "depth")


def runs(method, *accuracies, seeds=cases.SEEDS, shape=cases.ALIGNED, **fields):
    return [
        cases.run(method, seed, replace(shape, accuracy=accuracy), **fields)
        for seed, accuracy in zip(seeds, accuracies, strict=True)
    ]


def test_the_interval_is_that_of_the_paired_margins():
    ours, theirs = [0.414, 0.411, 0.385], [0.357, 0.352, 0.355]
    outcome = depth([*runs("dfa", *ours), *runs("dfa@frozen", *theirs)])
    margins = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
    low, high = stats.t.interval(0.95, 2, np.mean(margins), stats.sem(margins))
    assert outcome.evidence.value == pytest.approx(fmean(margins))
    assert outcome.evidence.interval == pytest.approx((low, high))
    assert (outcome.ruling, outcome.evidence.grade, outcome.unit) == ("undecided", "exact", "pp")
    assert outcome.details["estimator"] == "paired"
    assert [s.evidence.value for s in outcome.per_seed] == pytest.approx(margins)
    low_n, high_n = outcome.details["seeds_needed"]
    assert 3 < low_n <= high_n
    assert f"train about {low_n} to {high_n} seeds" in outcome.settles


@pytest.mark.parametrize(("ours", "ruling"), [((0.38, 0.381, 0.379), "passes"), ((0.36, 0.361, 0.359), "fires")])
def test_an_interval_clear_of_the_margin_decides(ours, ruling):
    outcome = depth([*runs("dfa", *ours), *runs("dfa@frozen", 0.35, 0.35, 0.35)])
    assert outcome.ruling == ruling
    assert outcome.settles is None


def test_pairing_matters():
    # Seeds that are good or bad together: paired, the margin is sharp; by Welch it would straddle.
    ours, theirs = [0.43, 0.40, 0.37], [0.39, 0.361, 0.329]
    outcome = depth([*runs("dfa", *ours), *runs("dfa@frozen", *theirs)])
    assert outcome.ruling == "passes"
    unpaired = depth([*runs("dfa", *ours), *runs("dfa@frozen", *theirs, seeds=(7, 8, 9))])
    assert unpaired.ruling == "undecided"
    assert unpaired.details["estimator"] == "Welch"
    expected = stats.ttest_ind(
        [100 * x for x in ours], [100 * x for x in theirs], equal_var=False
    ).confidence_interval()
    assert unpaired.evidence.interval == pytest.approx((expected.low, expected.high))


def test_seeds_on_one_side_only_are_left_out_and_named():
    outcome = depth([*runs("dfa", 0.45, 0.451, 0.2), *runs("dfa@frozen", 0.35, 0.35, seeds=(42, 123))])
    assert outcome.evidence.value == pytest.approx(10.05)
    assert "left out of the pairs: 456" in outcome.reason


def test_one_seed_is_undecided_in_standard_and_decided_in_published():
    logs = [*runs("dfa", 0.45, seeds=(1,)), *runs("dfa@frozen", 0.35, seeds=(1,))]
    assert depth(logs).ruling == "undecided"
    assert "one seed is not enough" in depth(logs).reason
    assert depth(logs, "published").ruling == "passes"


def test_published_takes_the_difference_of_seed_means():
    outcome = depth([*runs("dfa", 0.36, 0.38, 0.37), *runs("dfa@frozen", 0.34, 0.36, seeds=(1, 2))], "published")
    assert outcome.evidence.value == pytest.approx(2.0)
    assert outcome.evidence.interval is None
    assert outcome.details["seeds_needed"] is None


def test_a_bare_number_is_a_proxy_and_unmatched():
    outcome = depth(runs("dfa", 0.45, 0.451, 0.449), baseline=0.349)
    assert (outcome.ruling, outcome.evidence.grade) == ("passes", "proxy")
    assert "unmatched: the baseline is a bare number, 0.349" in outcome.reason
    assert outcome.baseline["matched"] is False
    assert "train dfa@frozen" in outcome.settles


def test_matched_logs_decide_even_when_a_number_is_given():
    outcome = depth([*runs("dfa", 0.45, 0.45, 0.45), *runs("dfa@frozen", 0.35, 0.351, 0.352)], baseline=0.9)
    assert (outcome.ruling, outcome.evidence.grade) == ("passes", "exact")


def test_no_baseline_is_not_measured_and_names_the_twin_to_train():
    outcome = depth(runs("dfa-rms+pen0.01", 0.45, 0.45, 0.45))
    assert outcome.ruling == "not measured"
    assert "no frozen-blocks run among the logs" in outcome.reason
    assert "train dfa-rms@frozen" in outcome.settles
    assert "train bp+pen0.01@frozen" in depth(runs("bp+pen0.01", 0.5, 0.5, 0.5, shape=cases.BP)).settles


def test_the_image_error_is_paired_over_images():
    logs = [*runs("dfa", 0.45, 0.452, 0.448), *runs("dfa@frozen", 0.35, 0.351, 0.352)]
    outcome = depth(logs)
    bits = [read_bits(log.end.correct, cases.N_TEST) for log in logs]
    difference = sum(bits[:3]) / 3 - sum(bits[3:]) / 3
    expected = 100 * difference.std(ddof=1) / np.sqrt(cases.N_TEST)
    assert outcome.details["image_se"] == pytest.approx(expected)
    assert f"± {expected:.2f} pp standard error over 10000 test images" in outcome.reason


def test_other_test_images_have_no_paired_error():
    logs = [*runs("dfa", 0.45, 0.45, 0.45), *runs("dfa@frozen", 0.35, 0.35, 0.35)]
    logs[0] = replace(logs[0], end=logs[0].end.model_copy(update={"correct": None}))
    assert depth(logs).details["image_se"] is None


def test_better_than_its_twin_but_not_than_a_shallow_net():
    logs = [
        *runs("dfa", 0.40, 0.401, 0.399),
        *runs("dfa@frozen", 0.35, 0.351, 0.352),
        *runs("bp@frozen", 0.421, 0.422, 0.421),
        *runs("bp", 0.61, 0.62, 0.63, shape=cases.BP),
        *runs("dfa@readout", 0.25, 0.25, 0.25),
    ]
    outcome = depth(logs)
    assert outcome.ruling == "passes"
    assert "better than its own frozen twin, not better than a shallow net trained by backprop" in outcome.reason
    assert "bp@frozen reaches 0.4213 (3 seeds)" in outcome.reason
    assert {b["method"]: b["accuracy"] for b in outcome.baseline["beside"]} == pytest.approx(
        {"bp@frozen": 0.421333, "dfa@readout": 0.25}, rel=1e-4
    )
    frozen, shallow = fmean((0.35, 0.351, 0.352)), fmean((0.421, 0.422, 0.421))
    assert outcome.details["normalised_margin"] == pytest.approx((0.40 - frozen) / (0.62 - shallow))


def test_a_frozen_twin_whose_branches_do_nothing_is_called_effectively_linear():
    logs = [*runs("dfa", 0.45, 0.45, 0.45), *runs("dfa@frozen", 0.35, 0.351, 0.352, shape=cases.FROZEN)]
    assert "effectively linear" in depth(logs).reason
    lively = [*logs[:3], *runs("dfa@frozen", 0.35, 0.351, 0.352)]
    assert "effectively linear" not in depth(lively).reason


def test_unfinished_claims_are_left_out_by_name():
    logs = [*runs("dfa", 0.45, 0.45, 0.45), *runs("dfa@frozen", 0.35, 0.351, 0.352)]
    killed = replace(logs[0], end=None)
    assert f"unfinished, not compared: {killed.name}" in depth([killed, *logs[1:]]).reason
    stopped = [replace(log, end=log.end.model_copy(update={"status": "stopped"})) for log in logs[:3]]
    assert depth([*stopped, *logs[3:]]).ruling == "not measured"


def test_judged_at_the_last_epoch_never_the_best():
    logs = [*runs("dfa", 0.45, 0.45, 0.45), *runs("dfa@frozen", 0.35, 0.35, 0.35)]
    bad_end = [replace(log, epochs=(*log.epochs, EpochRow(epoch=6, test_accuracy=0.30))) for log in logs[:3]]
    assert depth([*bad_end, *logs[3:]]).ruling == "fires"


def test_firing_since_when_against_the_twin_at_the_same_epoch():
    # The claim starts to lose its lead at epoch 4 of 5.
    logs = [*runs("dfa", 0.36, 0.36, 0.36), *runs("dfa@frozen", 0.35, 0.35, 0.35)]
    claims = [
        cases.edit(log, lambda row: {"test_accuracy": (0.1, 0.5, 0.5, 0.5, 0.355, 0.36)[row.epoch]}) for log in logs[:3]
    ]
    twins = [cases.edit(log, lambda row: {"test_accuracy": 0.35}) for log in logs[3:]]
    assert depth([*claims, *twins]).first_epoch == 4
    assert depth(claims, "published", baseline=0.35).first_epoch == 5


def test_accuracies_that_were_not_logged_are_not_invented():
    claims = [
        replace(cases.edit(log, lambda row: {"test_accuracy": None}), end=None) for log in runs("dfa", 0.4, 0.4, 0.4)
    ]
    outcome = depth(claims, baseline=0.3)
    assert outcome.ruling == "not measured"
    assert "no accuracy logged" in outcome.reason


@pytest.mark.parametrize(("accuracy", "shallow"), [(0.36, 0.42), (0.45, 0.42)])
def test_the_shallow_net_is_only_held_against_a_run_that_beats_its_twin(accuracy, shallow):
    logs = [
        *runs("dfa", accuracy, accuracy + 0.001, accuracy - 0.001),
        *runs("dfa@frozen", 0.35, 0.35, 0.35),
        *runs("bp@frozen", shallow, shallow, shallow),
    ]
    assert "not better than a shallow net" not in depth(logs).reason
    assert f"bp@frozen reaches {shallow}" in depth(logs).reason


def test_the_untrained_net_is_no_firing_epoch():
    logs = [*runs("dfa", 0.35, 0.35, 0.35), *runs("dfa@frozen", 0.35, 0.35, 0.35)]
    assert depth(logs, "published").first_epoch == 1
