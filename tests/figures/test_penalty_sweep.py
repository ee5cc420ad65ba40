"""The penalty sweep: one line per λ, reference lines computed from their own logs, early ends marked."""

import statistics

import pytest
from figures.cases import Shape, foreign, penalty_suite, run, runs

from creditscope.figures import penalty_sweep_table
from creditscope.figures.table import STOPPED
from creditscope.records import RunLog


def of(logs: list[RunLog], method: str) -> list[RunLog]:
    return [log for log in logs if log.spec.method == method]


def test_one_line_per_lambda_with_seed_means():
    logs = penalty_suite()
    table = penalty_sweep_table(logs)
    assert [item.label for item in table.series] == ["λ = 0", "λ = 0.0001", "λ = 0.01", "λ = 0.1"]
    for label, method in (("λ = 0", "dfa-rms"), ("λ = 0.1", "dfa-rms+pen0.1")):
        for panel, read in (
            ("a", lambda row: row.hidden.median[4]),
            ("b", lambda row: row.reference.median[2]),
            ("c", lambda row: row.test_accuracy),
        ):
            for point in table.of(panel, label):
                values = [read(log.epochs[int(point.x)]) for log in of(logs, method)]
                assert point.y == pytest.approx(statistics.fmean(values), rel=1e-12)
                assert point.high - point.y == pytest.approx(statistics.stdev(values), rel=1e-6)
    assert table.warnings == ()


def test_the_margin_line_is_the_baseline_plus_two_points():
    logs = [*runs("dfa-rms+pen0.01"), *runs("dfa-rms@frozen"), *runs("bp")]
    base, above = penalty_sweep_table(logs).of("c", kind="line")
    accuracies = [log.epochs[-1].test_accuracy for log in of(logs, "dfa-rms@frozen")]
    assert base.y == pytest.approx(statistics.fmean(accuracies))
    assert above.y == pytest.approx(statistics.fmean(accuracies) + 0.02)
    assert base.logs == above.logs == tuple(log.name for log in of(logs, "dfa-rms@frozen"))


def test_a_baseline_of_349_gives_369():
    log = run("dfa-rms@frozen")
    last = log.epochs[-1].model_copy(update={"test_accuracy": 0.349})
    log = RunLog(log.name, log.header, (*log.epochs[:-1], last), log.probes, log.end)
    _, above = penalty_sweep_table([*runs("dfa-rms+pen0.01"), log]).of("c", kind="line")
    assert above.y == pytest.approx(0.369)


def test_bp_line_is_the_bp_runs_own_level():
    logs = penalty_suite()
    (line,) = penalty_sweep_table(logs).of("a", kind="line")
    assert line.y == pytest.approx(statistics.fmean(log.epochs[-1].hidden.median[-1] for log in of(logs, "bp")))


def test_a_killed_run_is_drawn_as_far_as_it_got_and_marked():
    logs = [*runs("dfa-rms"), run("dfa-rms+pen0.01", 42, stop=12)]
    table = penalty_sweep_table(logs)
    points = table.of("c", "λ = 0.01")
    assert [point.x for point in points] == list(range(13))
    assert [point.note for point in points] == [""] * 12 + [STOPPED]
    assert any("λ = 0.01 seed 42 (epoch 12 of 30, no end row)" in note for note in table.notes)
    assert max(point.x for point in table.of("c", "λ = 0")) == 30


def test_a_killed_seed_is_drawn_beside_the_mean_of_the_others():
    logs = [*runs("dfa-rms+pen0.01", seeds=(1, 2)), run("dfa-rms+pen0.01", 3, stop=12)]
    points = penalty_sweep_table(logs).of("a", "λ = 0.01")
    mean, branch = [p for p in points if not p.branch], [p for p in points if p.branch]
    assert {p.n for p in mean} == {2}
    assert max(p.x for p in mean) == 30
    assert {p.branch for p in branch} == {"seed 3"}
    assert branch[-1].y == logs[2].epochs[12].hidden.median[-1]
    assert branch[-1].note == STOPPED


def test_a_diverged_run_is_drawn_to_its_last_finite_value():
    log = run("dfa-rms+pen0.01", 42, stop=12)
    rows = [
        row.model_copy(update={"hidden": row.hidden.model_copy(update={"median": [None] * 5})})
        if row.epoch > 9
        else row
        for row in log.epochs
    ]
    table = penalty_sweep_table([*runs("dfa-rms"), RunLog(log.name, log.header, tuple(rows), (), None)])
    points = table.of("a", "λ = 0.01")
    assert [point.x for point in points if point.note == STOPPED] == [9.0]
    assert "Left out of ‖h_L‖, zero or not logged: λ = 0.01 (3)." in table.notes


def test_runs_of_different_length_share_the_common_epochs():
    table = penalty_sweep_table([*runs("dfa-rms", epochs=50), *runs("dfa-rms+pen0.01", epochs=30)])
    assert max(point.x for point in table.points if point.kind == "point") == 30
    assert "Drawn over the common epochs, up to 30; logged for longer: λ = 0 (50)." in table.notes


def test_missing_runs_are_named():
    table = penalty_sweep_table(runs("dfa-rms+pen0.01"))
    assert [line.split(": ")[1].split(" in these")[0] for line in table.warnings] == [
        "no dfa-rms run without penalty",
        "no bp run",
        "no dfa-rms@frozen run",
    ]
    assert not penalty_sweep_table(runs("bp")).drawn


def test_foreign_logs_without_baseline():
    logs = [foreign(f"dfa-rms+pen{value}", 42) for value in ("0.0001", "0.01", "0.1")]
    table = penalty_sweep_table(logs)
    assert [item.label for item in table.series] == ["λ = 0.0001", "λ = 0.01", "λ = 0.1"]
    point = table.of("b", "λ = 0.01")[-1]
    assert point.y == logs[1].epochs[-1].reference.median[2]
    assert point.logs == (logs[1].name,)
    assert "One seed each: no bands." in table.notes


def test_a_shallow_net_without_state_2_gives_an_empty_panel_with_its_reason():
    log = foreign("dfa-rms+pen0.01", 1)
    rows = [row.model_copy(update={"reference": None}) for row in log.epochs]
    table = penalty_sweep_table([RunLog(log.name, log.header, tuple(rows), (), log.end)])
    assert table.panel("b").empty == "no dfa run here logs ‖g_2‖"
    assert not table.panel("a").empty


def test_the_rule_with_most_penalties_is_swept():
    calm = Shape(300.0, 0.1, 0.4, (0.1,) * 5, (0.1,) * 5, 0.1)
    logs = [*penalty_suite(), *runs("dfa", shape=calm), *runs("dfa+pen0.01", shape=calm)]
    assert penalty_sweep_table(logs).panel("a").title == "(a) Stream of dfa-rms"
