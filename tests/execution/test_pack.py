"""Packing: equal shapes together, a begun fleet as it was, nothing twice."""

import pytest
from cases import specs as records
from cases.specs import spec

from creditscope.errors import BadFile, CannotWrite
from creditscope.execution.pack import existing_logs, pack, plan_fleets
from creditscope.records import EndRow, HeaderRow, LogWriter, OptimiserSpec

A, B, C = spec("bp"), spec("dfa", seed=7, optimiser=OptimiserSpec(lr=0.5)), spec("fa+pen0.1@frozen", targets="random")
WIDE = spec("bp", width=16)


def begin(folder, *runs, company=None, end=None):
    company = [run.run_id for run in company or runs]
    for run in runs:
        writer = LogWriter(folder / f"{run.run_id}.jsonl")
        writer.create(HeaderRow(spec=run, fleet=company))
        writer.append(records.epoch(0))
        if end:
            writer.append(EndRow(status=end, epoch=3))


def test_rules_penalties_rates_seeds_masks_and_targets_share_a_fleet():
    assert pack([A, B, C]) == [[A, B, C]]


@pytest.mark.parametrize(
    "change",
    [
        {"width": 16},
        {"depth": 5},
        {"terminal_ln": False},
        {"batch": 8},
        {"epochs": 9},
        {"schedule": "constant"},
        {"dtype": "float64"},
        {"augment": "crop4+flip"},
        {"optimiser": OptimiserSpec(weight_decay=0.5)},
    ],
)
def test_unlike_runs_become_several_fleets(change):
    other = spec("bp", **change)
    assert pack([A, other, B]) == [[A, B], [other]]


def test_nothing_begun_is_packed_whole(tmp_path):
    assert plan_fleets(tmp_path, [A, WIDE, B], resume=False) == [[A, B], [WIDE]]
    assert plan_fleets(tmp_path, [A, WIDE, B], resume=True) == [[A, B], [WIDE]]


def test_what_is_there_needs_resume(tmp_path):
    begin(tmp_path, B)
    with pytest.raises(CannotWrite, match=rf"already holds 1 of these 2 runs \(such as {B.run_id}\); pass --resume"):
        plan_fleets(tmp_path, [A, B], resume=False)


@pytest.mark.parametrize("status", ["finished", "diverged", "stopped", "failed"])
def test_an_ended_run_is_left_out(tmp_path, status):
    begin(tmp_path, A, B, end=status)
    assert plan_fleets(tmp_path, [A, B], resume=True) == []
    assert plan_fleets(tmp_path, [A, B, C], resume=True) == [[C]]


def test_an_unfinished_run_keeps_its_company_in_order(tmp_path):
    begin(tmp_path, C, A, B)
    assert plan_fleets(tmp_path, [A, B, C], resume=True) == [[C, A, B]]


def test_company_that_has_ended_or_was_not_asked_for_comes_along(tmp_path):
    begin(tmp_path, A, company=[A, B, C])
    begin(tmp_path, B, C, company=[A, B, C], end="diverged")
    assert plan_fleets(tmp_path, [A], resume=True) == [[A, B, C]]
    assert plan_fleets(tmp_path, [A, WIDE], resume=True) == [[A, B, C], [WIDE]]


def test_company_that_had_no_time_to_begin_is_taken_from_what_was_asked(tmp_path):
    begin(tmp_path, A, company=[A, B])
    assert plan_fleets(tmp_path, [A, B], resume=True) == [[A, B]]


def test_company_that_is_gone_is_named(tmp_path):
    begin(tmp_path, A, company=[A, B])
    with pytest.raises(BadFile, match=rf"{B.run_id}.jsonl is missing, and a resume needs the whole fleet"):
        plan_fleets(tmp_path, [A], resume=True)


def test_a_header_cannot_name_a_file_elsewhere(tmp_path):
    inner = tmp_path / "runs"
    inner.mkdir()
    begin(tmp_path, B)
    LogWriter(inner / f"{A.run_id}.jsonl").create(HeaderRow(spec=A, fleet=[A.run_id, f"../{B.run_id}"]))
    with pytest.raises(BadFile, match="is missing"):
        plan_fleets(inner, [A], resume=True)


def test_existing_logs_by_id(tmp_path):
    begin(tmp_path, A)
    (tmp_path / "other.jsonl").write_text("junk")
    assert list(existing_logs(tmp_path, [A, B])) == [A.run_id]
