"""The penalty-rescue numbers against plain loops, and what it says when runs are missing."""

import statistics

import numpy as np
import pytest
from figures.cases import COLLAPSED, DEPTH, foreign, penalty_suite, run, runs

from creditscope.figures import penalty_rescue_table
from creditscope.figures.penalty_rescue import COSINE, RHO, RIGHT
from creditscope.protocol.checks.reference import REFERENCE_FLOOR
from creditscope.records import RunLog

DEEP = range(2, DEPTH + 1)


def of(logs: list[RunLog], method: str) -> list[RunLog]:
    return [log for log in logs if log.spec.method == method]


def bar(table, name: str, series: str):
    (found,) = [point for point in table.of("b", series) if point.x == name]
    return found


def deep(numbers: list[float]) -> float:
    return statistics.fmean(numbers[state] for state in DEEP)


def row(log: RunLog, epoch: int):
    return next(row for row in log.epochs if row.epoch == epoch)


def probe(log: RunLog, epoch: int):
    return next(row for row in log.probes if row.epoch == epoch)


def test_streams_are_seed_means_at_every_epoch():
    logs = penalty_suite()
    table = penalty_rescue_table(logs)
    for method in ("dfa-rms", "dfa-rms+pen0.01"):
        for panel, field in (("a", "hidden"), (RIGHT, "reference")):
            points = table.of(panel, method)
            assert len(points) == 31
            for point in points:
                values = [getattr(row(log, int(point.x)), field).median[-1] for log in of(logs, method)]
                mean, sd = statistics.fmean(values), statistics.stdev(values)
                assert (point.y, point.low, point.high) == pytest.approx((mean, mean - sd, mean + sd), rel=1e-9)
    (floor,) = table.of(RIGHT, kind="line")
    assert floor.y == REFERENCE_FLOOR


def test_vanilla_is_taken_at_the_last_probed_epoch_whose_reference_passes():
    logs = penalty_suite()
    vanilla = of(logs, "dfa-rms")
    expected = max(
        probe.epoch
        for probe in vanilla[0].probes
        if all(row(log, probe.epoch).reference.median[-1] >= REFERENCE_FLOOR for log in vanilla)
    )
    assert 0 < expected < 30
    pair = bar(penalty_rescue_table(logs), "λ = 0", COSINE)
    assert pair.quantity.endswith(f"at epoch {expected}")
    assert pair.y == pytest.approx(statistics.fmean(deep(row(log, expected).cosine.mean) for log in vanilla))


@pytest.mark.parametrize(("method", "name"), [("dfa-rms+pen0.0001", "λ = 0.0001"), ("dfa-rms+pen0.01", "λ = 0.01")])
def test_penalised_bars_are_at_the_last_probe(method, name):
    logs = penalty_suite()
    table = penalty_rescue_table(logs)
    cosines = [deep(row(log, 30).cosine.mean) for log in of(logs, method)]
    rhos = [deep(probe(log, 30).rho.credit) for log in of(logs, method)]
    for series, values in ((COSINE, cosines), (RHO, rhos)):
        point = bar(table, name, series)
        assert point.y == pytest.approx(statistics.fmean(values))
        assert point.high - point.y == pytest.approx(statistics.stdev(values))
        assert point.logs == tuple(log.name for log in of(logs, method))


def test_null_and_control_come_from_the_penalised_runs():
    logs = penalty_suite()
    table = penalty_rescue_table(logs)
    penalised = of(logs, "dfa-rms+pen0.01")
    null = bar(table, "fresh-B null", COSINE)
    assert null.y == pytest.approx(statistics.fmean(deep(probe(log, 30).null.mean) for log in penalised))
    redrawn = [np.mean([probe(log, 30).null.draws[s] for s in DEEP], axis=0) for log in penalised]
    assert null.high - null.y == pytest.approx(np.sqrt(np.mean([draws.var(ddof=1) for draws in redrawn])))
    assert null.spread == "± s.d. over 19 redraws"
    control = bar(table, "BP gradient", RHO)
    assert control.y == pytest.approx(statistics.fmean(deep(probe(log, 30).rho.control) for log in penalised))
    assert bar(table, "BP gradient", COSINE).logs == tuple(log.name for log in of(logs, "bp"))
    assert bar(table, "fresh-B null", RHO).note == "ρ of a random vector"


def test_title_carries_the_computed_cost_and_gap():
    logs = penalty_suite()
    mean = {
        m: statistics.fmean(log.epochs[-1].test_accuracy for log in of(logs, m))
        for m in ("bp", "bp+pen0.01", "dfa-rms+pen0.01", "dfa-rms@frozen")
    }
    table = penalty_rescue_table(logs)
    cost, gap = 100 * (mean["bp"] - mean["bp+pen0.01"]), 100 * (mean["bp+pen0.01"] - mean["dfa-rms+pen0.01"])
    assert table.panel("c").title == f"(c) Cost to BP {cost:.1f} pp, gap {gap:.1f} pp"
    assert "(c): cost = bp − bp+pen0.01; remaining gap = bp+pen0.01 − dfa-rms+pen0.01." in table.notes
    (frozen,) = table.of("c", kind="line")
    assert frozen.y == pytest.approx(mean["dfa-rms@frozen"])
    assert len(table.of("c", kind="bar")) == 4
    assert table.warnings == ()


def test_a_penalty_that_helps_bp_gives_a_negative_cost():
    better = COLLAPSED.__class__(100.0, 0.1, 0.7, (1.0,) * 5, (1.0,) * 5, 0.99, exact=True)
    table = penalty_rescue_table([*runs("bp"), *runs("bp+pen0.01", shape=better), *runs("dfa-rms+pen0.01")])
    assert "Cost to BP −" in table.panel("c").title


def test_missing_runs_are_named_and_not_invented():
    table = penalty_rescue_table(runs("dfa-rms+pen0.01"))
    assert [line.split("no ")[1].split(" run")[0] for line in table.warnings] == [
        *("dfa-rms", "dfa-rms+pen0.0001", "bp", "bp+pen0.01", "dfa-rms@frozen"),
    ]
    assert table.panel("c").title == "(c) Cost and gap unknown: no bp+pen0.01 accuracy"
    assert {point.x for point in table.of("b") if point.y is not None} == {"λ = 0.01", "fresh-B null", "BP gradient"}
    assert bar(table, "BP gradient", COSINE).y is None


def test_without_lambda_1e_2_the_nearest_is_shown_and_said():
    table = penalty_rescue_table([*runs("dfa-rms"), *runs("dfa-rms+pen0.1"), *runs("dfa-rms+pen0.0001")])
    assert "penalty-rescue: no run at λ = 0.01; λ = 0.1 is shown instead" in table.warnings
    assert {item.label for item in table.series} == {"dfa-rms", "dfa-rms+pen0.1"}


def test_partial_foreign_logs_use_g_2_and_say_so():
    table = penalty_rescue_table([foreign("dfa-rms", 1, 100, full=True), foreign("dfa-rms+pen0.01", 1, 30)])
    standin = table.of(RIGHT, "dfa+pen0.01")
    assert {point.quantity for point in standin} == {"‖g_2‖ in place of ‖g_L‖"}
    assert "dfa+pen0.01: ‖g_2‖ stands in for ‖g_L‖, which was not logged." in table.notes
    assert table.panel("b").empty
    assert max(point.x for point in table.of("a", "dfa")) == 30
    assert any("up to 30; logged for longer: dfa (100)" in note for note in table.notes)


def test_vanilla_without_any_usable_probe_is_left_out_and_said():
    logs = [run("dfa-rms", probes=False), *runs("dfa-rms+pen0.01")]
    table = penalty_rescue_table(logs)
    assert not [point for point in table.of("b") if point.x == "λ = 0"]
    assert any("no probed epoch of dfa-rms" in note for note in table.notes)


def test_of_several_recipes_the_one_like_the_penalised_run_is_compared():
    table = penalty_rescue_table([*runs("dfa-rms+pen0.01"), *runs("dfa-rms", epochs=100), *runs("dfa-rms", epochs=30)])
    assert {point.logs for point in table.of("a") if "pen" not in point.series} == {
        tuple(log.name for log in runs("dfa-rms", epochs=30))
    }


def test_nothing_to_draw():
    assert not penalty_rescue_table([]).drawn
