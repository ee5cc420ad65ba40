"""The auditor audited: error rates at the boundary, and sabotage that must trip exactly its own checks."""

from dataclasses import replace

import numpy as np
import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.cells import Baseline, Cell
from creditscope.protocol.checks.depth import DepthInterval
from creditscope.protocol.checks.direction import Direction
from creditscope.protocol.evidence import Ruling


def required(logs, protocol="standard"):
    """Outcome by required check of the one claim cell."""
    (claim,) = audit(logs, protocol).claims
    return {outcome.name: str(outcome.ruling) for outcome in claim.outcomes if outcome.required}


@pytest.mark.parametrize("name", cases.SABOTAGE)
def test_sabotage_trips_exactly_its_checks(name):
    sabotage, expected = cases.SABOTAGE[name]
    logs = [*map(sabotage, cases.cell("dfa", cases.ALIGNED)), *cases.cell("dfa@frozen", cases.FROZEN)]
    outcomes = required(logs)
    assert {check for check, outcome in outcomes.items() if outcome == "fires"} == expected
    assert {outcome for check, outcome in outcomes.items() if check not in expected} == {"passes"}


def test_a_better_frozen_twin_trips_depth_only():
    better = replace(cases.FROZEN, accuracy=cases.ALIGNED.accuracy + 0.03)
    outcomes = required([*cases.cell("dfa", cases.ALIGNED), *cases.cell("dfa@frozen", better)])
    assert {check for check, outcome in outcomes.items() if outcome == "fires"} == {"depth"}
    assert {outcome for check, outcome in outcomes.items() if check != "depth"} == {"passes"}


@pytest.mark.parametrize("method", ["bp", "dfa"])
@pytest.mark.parametrize("protocol", ["standard", "published"])
def test_healthy_runs_trip_nothing(method, protocol):
    (claim,) = audit(cases.healthy(method), protocol).claims
    assert {str(outcome.ruling) for outcome in claim.outcomes if outcome.required} == {"passes"}
    assert claim.verdict.kind == "trustworthy"


def test_bp_fitted_to_99_percent_trips_nothing_in_standard_and_is_called_fitted_in_published():
    # On a fitted net e is tiny and so is g; the gain γ = ‖g‖/‖e‖ is what it always was.
    fitted = replace(cases.BP, accuracy=0.99, error=1e-6)
    logs = [*cases.cell("bp", fitted), *cases.cell("bp@frozen", cases.FROZEN)]
    assert set(required(logs).values()) == {"passes"}
    (claim,) = audit(logs, "published").claims
    reference = next(outcome for outcome in claim.outcomes if outcome.name == "reference")
    assert reference.ruling is Ruling.FIRES
    assert "small because fitted" in reference.reason


def test_direction_passes_at_most_one_percent_of_runs_whose_feedback_was_redrawn():
    """Exact: under the null the run's own feedback is one of K + 1 exchangeable draws, so take each in turn.

    All deep blocks share one draw: the worst case, since independent blocks must all pass by chance together.
    """
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.5, cases.K + 1)  # wide, so that the smallest cosine asked for does not help
    shape, check, passed = cases.ALIGNED, Direction(0.05), 0
    base = cases.run("dfa", shape=shape)
    for own in range(cases.K + 1):
        rest = np.delete(values, own)
        test = base.probes[-1].null.model_copy(
            update={"observed": [float(values[own])] * 5, "draws": [rest.tolist()] * 5, "p": [None] * 5}
        )
        log = replace(base, probes=(base.probes[-1].model_copy(update={"null": test}),))
        passed += check.judge(Cell((log,), "claim")).ruling is Ruling.PASSES
    assert passed == sum(1 for rank in range(cases.K + 1) if (1 + rank) / (cases.K + 1) < 0.01)
    assert passed <= 0.01 * (cases.K + 1)


def test_direction_over_three_seeds_passes_at_most_one_percent_of_redrawn_cells():
    rng = np.random.default_rng(1)
    k, n = 199, 600
    check, passed = Direction(0.05), 0
    bases = [cases.run("dfa", seed) for seed in cases.SEEDS]
    for _ in range(n):
        logs = []
        for base in bases:
            draws = rng.normal(0, 0.5, k + 1)
            test = base.probes[-1].null.model_copy(
                update={"observed": [float(draws[0])] * 5, "draws": [draws[1:].tolist()] * 5, "p": [None] * 5}
            )
            logs.append(replace(base, probes=(base.probes[-1].model_copy(update={"null": test}),)))
        passed += check.judge(Cell(tuple(logs), "claim")).ruling is Ruling.PASSES
    # True rate 1/200; the bound is the promised 1 % plus three standard errors.
    assert passed / n <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / n)


def test_depth_errs_at_most_two_and_a_half_percent_each_way_at_a_true_margin_of_exactly_two_points():
    rng = np.random.default_rng(2)
    n, check, tally = 1500, DepthInterval(2.0), dict.fromkeys(Ruling, 0)
    claims, twins = cases.cell("dfa", cases.ALIGNED), cases.cell("dfa@frozen", cases.FROZEN)
    for _ in range(n):
        both = [
            tuple(_with_accuracy(log, 0.5 + shift + rng.normal(0, 0.004)) for log in side)
            for side, shift in ((claims, 0.02), (twins, 0.0))
        ]
        tally[check.judge(Cell(both[0], "claim", Baseline(runs=both[1]))).ruling] += 1
    slack = 3 * np.sqrt(0.025 * 0.975 / n)
    assert tally[Ruling.FIRES] / n <= 0.025 + slack
    assert tally[Ruling.PASSES] / n <= 0.025 + slack
    # And the check can decide at all: both errors do occur at the boundary.
    assert tally[Ruling.FIRES] > 0
    assert tally[Ruling.PASSES] > 0


def _with_accuracy(log, accuracy):
    rows = (log.epochs[-1].model_copy(update={"test_accuracy": accuracy}),)
    end = log.end.model_copy(update={"correct": None})
    return replace(log, epochs=rows, end=end)
