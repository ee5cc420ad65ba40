"""The auditor audited: error rates against what is promised, and sabotage that must trip exactly its own checks.

A rate may lie above the promised one by three Monte-Carlo standard errors. ``docs/calibration.md`` has more trials.
"""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from protocol import cases

from creditscope.protocol import audit, margins, pooling
from creditscope.protocol.evidence import Ruling

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from error_rates import Accuracies, Credits, Rates, allowed, seen

TRIALS = 400
FALSE = 0.025


def required(logs, protocol="standard"):
    """Outcome by required check of the one claim cell."""
    claims = audit(logs, protocol).claims
    return {outcome.name: str(outcome.ruling) for outcome in claims[0].outcomes if outcome.required}


def study(claim, twin=cases.FROZEN):
    """A method with all that its depth is compared with: its frozen twin, the readout, the positive control."""
    return [
        *claim,
        *cases.cell("dfa@frozen", twin),
        *cases.cell("bp", cases.BP),
        *cases.cell("bp@frozen", cases.FROZEN),
        *cases.cell("bp@readout", replace(cases.FROZEN, accuracy=0.33)),
    ]


def fired_and_others(outcomes):
    asked = {check: outcome for check, outcome in outcomes.items() if outcome != "not applicable"}
    fired = {check for check, outcome in asked.items() if outcome == "fires"}
    return fired, {outcome for check, outcome in asked.items() if check not in fired}


@pytest.mark.parametrize("name", cases.SABOTAGE)
def test_sabotage_trips_exactly_its_checks(name):
    sabotage, expected = cases.SABOTAGE[name]
    logs = study([*map(sabotage, cases.cell("dfa", cases.ALIGNED))])
    assert fired_and_others(required(logs)) == (expected, {"passes"})


def test_a_better_frozen_twin_trips_depth_only():
    better = replace(cases.FROZEN, accuracy=cases.ALIGNED.accuracy + 0.03)
    assert fired_and_others(required(study(cases.cell("dfa", cases.ALIGNED), better))) == ({"depth"}, {"passes"})


def test_healthy_runs_trip_nothing():
    assert fired_and_others(required(study(cases.cell("dfa", cases.ALIGNED)))) == (set(), {"passes"})


def test_bp_fitted_to_99_percent_trips_nothing_in_standard_and_is_called_fitted_in_published():
    # On a fitted net e is tiny and so is g; the gain γ = ‖g‖/‖e‖ is what it always was.
    fitted = replace(cases.BP, accuracy=0.99, error=1e-6)
    logs = [*cases.cell("bp", fitted), *cases.cell("bp@frozen", cases.FROZEN)]
    assert "fires" not in required(logs).values()
    (claim,) = audit(logs, "published").claims
    reference = next(outcome for outcome in claim.outcomes if outcome.name == "reference")
    assert reference.ruling is Ruling.FIRES
    assert "small because fitted" in reference.reason


# Direction. The largest spread over seeds and the most alike blocks are where it errs most.
@pytest.mark.parametrize(
    ("seeds", "null_sd", "spread", "promise"),
    [(3, 0.15, 1, 0.01), (5, 0.05, 2, 0.01), (3, 0.15, 3, 0.02), (5, 0.15, 3, 0.02), (10, 0.05, 3, 0.02)],
)
@pytest.mark.parametrize("correlation", [0.0, 0.94])
def test_direction_passes_hardly_any_run_whose_feedback_was_redrawn(seeds, null_sd, spread, promise, correlation):
    drawn = Credits(0.0, null_sd, spread, seeds, correlation=correlation)
    assert drawn.rates(TRIALS).share("passes") <= allowed(promise, TRIALS)


@pytest.mark.parametrize("correlation", [0.0, 0.94])
@pytest.mark.parametrize(("seeds", "null_sd"), [(3, 0.02), (3, 0.15), (5, 0.05), (5, 0.15), (10, 0.15)])
def test_direction_fires_on_hardly_any_method_whose_every_block_is_truly_at_15_hundredths(seeds, null_sd, correlation):
    aligned = Credits(0.15, null_sd, 2, seeds, correlation=correlation)
    assert aligned.rates(TRIALS).share("fires") <= allowed(FALSE, TRIALS)


@pytest.mark.parametrize("blocks", [1, 3, 11])
@pytest.mark.parametrize("correlation", [0.0, 0.94, 1.0])
def test_direction_fires_on_nine_of_ten_methods_whose_every_block_is_truly_at_0(blocks, correlation):
    blind = Credits(0.0, 0.02, 1, 3, blocks, correlation)
    assert blind.rates(TRIALS).share("fires") >= 0.9


def test_direction_passes_what_is_aligned():
    assert Credits(0.3, 0.02, 1, 3).rates(100).share("passes") == 1


def test_blocks_that_differ_are_left_open():
    # One far above the threshold, one far below but not against the gradient: no number of seeds settles it.
    mixed = Credits((0.4, 0.02), 0.01, 1, 10, blocks=2)
    assert mixed.rates(100) == Rates(100, 0, 0)


@pytest.mark.parametrize(("cosine", "null_sd"), [*product((-0.5, 0.0, 0.5), (0.02, 0.15))])
def test_one_seed_never_decides_a_direction(cosine, null_sd):
    assert Credits(cosine, null_sd, 1, 1).rates(50) == Rates(50, 0, 0)


@pytest.mark.parametrize("check", ["depth_rates", "harm_rates", "learning_rates"])
def test_one_seed_never_decides_an_accuracy(check):
    assert getattr(Accuracies(0.1, 1, images=500), check)(20) == Rates(20, 0, 0)


# Depth and learning, at a margin over all images of exactly the threshold; the test images are drawn anew too.
@pytest.mark.parametrize("seed_sd", [0.0005, 0.003, 0.01])
@pytest.mark.parametrize(("seeds", "images", "opponents"), [(3, 1000, 1), (3, 2000, 2), (5, 1000, 2), (10, 1000, 1)])
def test_depth_errs_hardly_ever_either_way_at_exactly_two_points(seeds, seed_sd, images, opponents):
    found = Accuracies(0.02, seeds, seed_sd, images, opponents).depth_rates(TRIALS)
    assert max(found.share("passes"), found.share("fires")) <= allowed(FALSE, TRIALS)


@pytest.mark.parametrize("seeds", [3, 5])
def test_harm_is_hardly_ever_said_of_a_run_one_point_below(seeds):
    assert Accuracies(-0.01, seeds, images=1000).harm_rates(TRIALS).share("fires") <= allowed(FALSE, TRIALS)


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("seeds", [3, 10])
def test_learning_errs_hardly_ever_either_way_at_exactly_one_point_above_chance(seeds, unequal):
    found = Accuracies(0.01, seeds, images=1000, unequal=unequal).learning_rates(TRIALS)
    assert max(found.share("passes"), found.share("fires")) <= allowed(FALSE, TRIALS)


def test_accuracies_without_results_on_each_image_are_judged_with_more_care():
    found = Accuracies(0.02, 3, 0.001, 1000, logged=False).depth_rates(TRIALS)
    assert max(found.share("passes"), found.share("fires")) < FALSE


# What these tests would say of estimators that are wrong.
def test_blocks_taken_for_independent_would_be_noticed(monkeypatch):
    at_the_threshold = Credits(0.05, 0.01, 3, 3, blocks=11, correlation=1.0)
    assert at_the_threshold.rates(TRIALS).share("passes") <= allowed(FALSE, TRIALS)
    monkeypatch.setattr(pooling, "worth", len)
    assert at_the_threshold.rates(TRIALS).share("passes") > allowed(FALSE, TRIALS)


def test_an_interval_that_forgets_the_test_images_would_be_noticed(monkeypatch):
    monkeypatch.setattr(margins, "image_variance", lambda score: 0.0)
    found = Accuracies(0.02, 10, 0.0005, 1000).depth_rates(TRIALS)
    assert min(found.share("passes"), found.share("fires")) > allowed(FALSE, TRIALS)


def test_the_effect_that_is_seen_is_found_by_halving():
    assert seen(lambda effect: min(effect, 1.0), 0.0, 2.0, steps=20) == pytest.approx(0.8, abs=1e-5)
    assert seen(lambda effect: min(-effect, 1.0), 0.0, -2.0, steps=20) == pytest.approx(-0.8, abs=1e-5)
    assert seen(lambda effect: 0.5, 0.0, 2.0) is None
