"""Grouping, labels, units and means."""

import statistics

import pytest
from figures.cases import audit_suite, foreign, run, runs
from hypothesis import given
from hypothesis import strategies as st

from creditscope.figures.means import depth_of, drawn_cells, mean_over, value_of
from creditscope.quantities.per_epoch import REFERENCE
from creditscope.records import HeaderRow, OptimiserSpec, ProbeSpec, RunLog


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=9))
def test_mean_and_sample_sd(values):
    mean = mean_over((f"{i}.jsonl", value) for i, value in enumerate(values))
    scale = max(1.0, *map(abs, values))
    assert mean.y == pytest.approx(statistics.fmean(values), abs=1e-9 * scale)
    assert mean.high - mean.y == pytest.approx(statistics.stdev(values), abs=1e-6 * scale)
    assert mean.n == len(values)


def test_unknown_and_infinite_values_do_not_count():
    mean = mean_over([("a", 1.0), ("b", None), ("c", float("nan")), ("d", float("inf"))])
    assert (mean.y, mean.low, mean.n, mean.logs, mean.spread) == (1.0, None, 1, ("a",), "")
    assert mean_over([]).y is None


def test_runs_that_differ_only_in_seed_are_one_cell():
    cells, warnings = drawn_cells(audit_suite(5))
    assert [cell.label for cell in cells] == ["bp", "fa-block", "dfa-rms", "dfa-rms@frozen"]
    assert [[log.spec.seed for log in cell.runs] for cell in cells] == [[42, 123, 456]] * 4
    assert warnings == ()


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({"terminal_ln": False}, ["bp", "bp (no terminal LN)"]),
        ({"epochs": 5}, ["bp (30 epochs)", "bp (5 epochs)"]),
        ({"depth": 8}, ["bp (L = 4)", "bp (L = 8)"]),
        ({"depth": 8, "epochs": 5}, ["bp (L = 4, 30 epochs)", "bp (L = 8, 5 epochs)"]),
        ({"targets": "random"}, ["bp", "bp (random targets)"]),
        ({"optimiser": OptimiserSpec(lr=0.01)}, ["bp (lr 0.001, decay 0.01)", "bp (lr 0.01, decay 0.01)"]),
        ({"dtype": "float64"}, ["bp (float32)", "bp (float64)"]),
    ],
)
def test_labels_say_what_differs(fields, labels):
    cells, _ = drawn_cells([run("bp"), run("bp", **fields)])
    assert [cell.label for cell in cells] == labels


def test_cells_that_no_word_tells_apart_get_a_hash():
    cells, _ = drawn_cells([run("bp"), run("bp", probe=ProbeSpec(directions=8))])
    labels = [cell.label for cell in cells]
    assert len(set(labels)) == 2
    assert all(label.startswith("bp #") for label in labels)


def test_very_long_foreign_names_are_cut_and_stay_apart():
    logs = []
    for tail in ("a", "b"):
        log = foreign("bp", 1)
        spec = log.spec.model_copy(update={"rule": "r" * 300 + tail})
        logs.append(RunLog(f"{tail}.json", HeaderRow(spec=spec), log.epochs, (), log.end))
    labels = [cell.label for cell in drawn_cells(logs)[0]]
    assert len(set(labels)) == 2
    assert max(map(len, labels)) < 60


def test_a_repeated_seed_counts_once_and_the_longer_run_stays():
    cells, warnings = drawn_cells([run("bp", 1, stop=3), run("bp", 1)])
    assert [len(log.epochs) for cell in cells for log in cell.runs] == [31]
    assert "same run, same seed" in warnings[0]


def test_runs_without_a_seed_are_all_kept():
    log = foreign("bp", 1)
    other = RunLog("b.json", HeaderRow(spec=log.spec.model_copy(update={"seed": None})), log.epochs, (), log.end)
    third = RunLog("c.json", other.header, log.epochs, (), log.end)
    cells, warnings = drawn_cells([other, third])
    assert [len(cell.runs) for cell in cells] == [2]
    assert warnings == ()


def test_mean_reduced_norms_become_per_sample():
    log = run("bp", probe=ProbeSpec(reduction="mean", batch=64))
    row = log.epochs[-1]
    assert value_of(REFERENCE)(log, row) == pytest.approx(64 * row.reference.median[-1])
    ours = run("bp")
    assert value_of(REFERENCE, 2)(ours, ours.epochs[3]) == ours.epochs[3].reference.median[2]
    imported = foreign("bp", 1)
    assert value_of(REFERENCE, 2)(imported, imported.epochs[3]) == imported.epochs[3].reference.median[2]


def test_depth_and_states_out_of_reach():
    log = foreign("bp", 1)
    assert log.spec.depth is None
    assert depth_of(log) == 4
    assert value_of(REFERENCE, 9)(log, log.epochs[0]) is None


def test_finished_runs_are_averaged_without_the_others():
    cells, _ = drawn_cells([*runs("bp", seeds=(1, 2)), run("bp", 3, stop=4)])
    averaged, early = cells[0].split()
    assert [log.spec.seed for log in averaged.runs] == [1, 2]
    assert [log.spec.seed for log in early] == [3]
