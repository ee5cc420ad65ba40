"""The snapshot: rows by architecture, bands over seeds, seeds of unequal length aligned."""

import statistics

import pytest
from figures.cases import foreign, penalty_suite, run, runs, snapshot_suite, vit_suite

from creditscope.figures import snapshot_table
from creditscope.figures.table import STOPPED


def test_two_by_two_with_and_without_terminal_ln():
    logs = snapshot_suite()
    table = snapshot_table(logs)
    assert [panel.title for panel in table.panels] == [
        "(a) ResMLP with terminal LN, n = 3 seeds",
        "(b) ResMLP with terminal LN, n = 3 seeds",
        "(c) ResMLP without terminal LN, n = 3 seeds",
        "(d) ResMLP without terminal LN, n = 3 seeds",
    ]
    assert table.warnings == ()
    for key, ln, field in (("a", True, "hidden"), ("b", True, "reference"), ("d", False, "reference")):
        mine = [log for log in logs if log.spec.method == "dfa-rms" and log.spec.terminal_ln is ln]
        points = table.of(key, "dfa-rms")
        assert [point.x for point in points] == list(range(101))
        for point in points[::10]:
            values = [getattr(log.epochs[int(point.x)], field).median[-1] for log in mine]
            mean, sd = statistics.fmean(values), statistics.stdev(values)
            assert (point.y, point.low, point.high) == pytest.approx((mean, mean - sd, mean + sd), rel=1e-9)
            assert point.logs == tuple(log.name for log in mine)


def test_vit_is_one_row_on_the_class_token():
    table = snapshot_table(vit_suite())
    assert [panel.title for panel in table.panels] == [
        "(a) ViT-Mini, class token, n = 3 seeds",
        "(b) ViT-Mini, class token, n = 3 seeds",
    ]


def test_seeds_of_unequal_length_are_aligned_and_it_is_said():
    logs = [run("bp", 1, 40), run("bp", 2, 40), run("bp", 3, 25)]
    table = snapshot_table(logs)
    points = table.of("a", "bp")
    assert [point.x for point in points] == list(range(26))
    assert {point.n for point in points} == {3}
    assert points[-1].y == pytest.approx(statistics.fmean(log.epochs[25].hidden.median[-1] for log in logs))
    assert "bp: seeds end at epochs 40, 40, 25; aligned on the 26 common epochs, up to 25." in table.notes


def test_the_same_seed_at_two_lengths_is_drawn_once():
    table = snapshot_table([*runs("bp", epochs=40), *runs("bp", epochs=20)])
    assert {point.n for point in table.of("a", "bp")} == {3}
    assert max(point.x for point in table.of("a", "bp")) == 40
    assert any("repeats seeds of a longer run" in line for line in table.warnings)


def test_a_killed_seed_is_drawn_beside_the_band():
    table = snapshot_table([*runs("dfa-rms", seeds=(1, 2)), run("dfa-rms", 3, stop=11)])
    branch = [point for point in table.of("a", "dfa-rms") if point.branch]
    assert [point.x for point in branch] == list(range(12))
    assert branch[-1].note == STOPPED
    assert table.panel("a").title.endswith("n = 2 seeds")


def test_missing_row_and_rule_are_named_and_the_panel_says_why():
    table = snapshot_table(runs("bp"))
    assert table.panel("c").empty == "these logs hold no run of ResMLP without terminal LN"
    assert table.warnings == (
        "snapshot: ResMLP with terminal LN: no dfa run in these logs; drawn without it",
        "snapshot: ResMLP without terminal LN: no run in these logs; its panels are closed",
    )


def test_foreign_logs_that_do_not_state_the_norm():
    table = snapshot_table([foreign("bp", 42, full=True), foreign("dfa-rms", 42, full=True)])
    assert table.panel("a").title == "(a) Imported runs, terminal LN not stated, n = 1 seed"
    assert table.of("b", "dfa")[-1].logs == ("evolution_s42.json#dfa_log",)


def test_penalised_and_baseline_runs_are_named_not_drawn():
    table = snapshot_table(penalty_suite())
    assert {item.label for item in table.series} == {"bp", "dfa-rms"}
    assert any("are not drawn: bp+pen0.01" in line for line in table.warnings)


def test_unequal_numbers_of_seeds_stand_in_the_title():
    table = snapshot_table([*runs("bp"), *runs("dfa-rms", seeds=(1, 2))])
    assert table.panel("a").title == "(a) ResMLP with terminal LN, seeds: n = 3 (bp), n = 2 (dfa-rms)"


def test_a_band_that_reaches_below_zero_is_said():
    logs = [run("dfa-rms", 1), run("dfa-rms", 2, shape=None)]
    rows = [
        row.model_copy(
            update={"hidden": row.hidden.model_copy(update={"median": [v * 1e4 for v in row.hidden.median]})}
        )
        for row in logs[1].epochs
    ]
    logs[1] = logs[1].__class__(logs[1].name, logs[1].header, tuple(rows), (), logs[1].end)
    table = snapshot_table(logs)
    assert table.of("a", "dfa-rms")[5].low < 0
    assert any("only the upper half of the band" in note for note in table.notes)


def test_empty():
    assert not snapshot_table([]).drawn
