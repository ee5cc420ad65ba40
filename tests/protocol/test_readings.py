"""A run that the checks have read gives the same audit as its whole log, and holds a fraction of it."""

import gc
import json
import shutil
import tracemalloc
from pathlib import Path

import pytest
from protocol import cases

from creditscope.errors import NotMeasured
from creditscope.protocol import audit, readings
from creditscope.protocol.facts import Assumptions
from creditscope.protocol.presets import protocol_named
from creditscope.protocol.readings import Reader, curve_of, reading_of
from creditscope.protocol.spill import Spill
from creditscope.records import LogWriter
from creditscope.records.load import load_logs

GOLDEN = Path(__file__).parents[1] / "golden"
SETS = {
    "healthy": lambda: cases.healthy("dfa"),
    "bp": lambda: cases.healthy("bp"),
    **{
        name: (lambda s=sabotage: [*map(s, cases.cell("dfa", cases.ALIGNED)), *cases.opponents("dfa")])
        for name, (sabotage, _) in cases.SABOTAGE.items()
    },
}


def write(logs, folder):
    for log in {log.name: log for log in logs}.values():
        header, *rows = log.rows()
        writer = LogWriter(folder / f"{log.name}.jsonl")
        writer.create(header)
        for row in rows:
            writer.append(row)
    return folder


@pytest.mark.parametrize("protocol", ["standard", "standard@1", "published"])
@pytest.mark.parametrize("name", SETS)
def test_files_read_one_by_one_give_the_audit_of_whole_logs(name, protocol, tmp_path):
    folder = write(SETS[name](), tmp_path)
    whole, read = audit(folder, protocol), audit(folder, protocol, keep_rows=False)
    assert read.to_dict() == whole.to_dict()
    assert read.to_text() == whole.to_text()
    assert {len(run.epochs) for cell in read.cells for run in cell.cell.runs} == {1}
    assert {len(run.epochs) for cell in whole.cells for run in cell.cell.runs} != {1}


@pytest.mark.parametrize("protocol", ["standard", "standard@1", "published"])
def test_published_layouts_too(protocol):
    whole, read = (audit(GOLDEN, protocol, baseline=0.349, keep_rows=keep) for keep in (True, False))
    assert read.to_dict() == whole.to_dict()


def test_the_rows_are_let_go():
    log = cases.run(epochs=8)
    run = Reader(protocol_named("standard").checks, Assumptions()).read(log)
    assert (len(log.epochs), len(run.epochs)) == (9, 1)
    assert run.last.test_accuracy == log.last.test_accuracy
    assert run.last.hidden.median == log.last.hidden.median
    assert run.last.movement is None
    assert [probe.epoch for probe in run.probes] == [log.probes[-1].epoch]
    assert run.probes[0].null is None


def test_only_the_checks_that_read_a_run_can_judge_it():
    ours, others = protocol_named("standard").checks, protocol_named("standard", {"scale": 40}).checks
    run = Reader(ours, Assumptions()).read(cases.run(epochs=4))
    (mine,), (other,) = ([check for check in checks if check.name == "scale"] for checks in (ours, others))
    assert reading_of(run, run.facts, mine) == mine.read(cases.run(epochs=4), run.facts)
    with pytest.raises(NotMeasured, match=r"the rows of .* were let go after an audit; load the log again"):
        reading_of(run, run.facts, other)
    (scale,) = [outcome for outcome in audit([run]).claims[0].outcomes if outcome.name == "scale"]
    assert str(scale.ruling) == "not measured"
    assert "load the log again" in scale.reason


def test_a_check_that_cannot_read_says_so_and_the_others_go_on(tmp_path, monkeypatch):
    from creditscope.protocol.checks.scale import Scale

    folder = write(cases.healthy("dfa"), tmp_path)

    def broken(self, facts, row):
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(Scale, "measure", broken)
    found = {outcome.name: outcome for outcome in audit(folder, keep_rows=False).claims[0].outcomes}
    scale = found.pop("scale")
    assert (str(scale.ruling), scale.reason) == ("not measured", "the check failed: ZeroDivisionError: by hand")
    assert {str(outcome.ruling) for outcome in found.values()} <= {"passes", "not applicable", "not measured"}
    assert str(found["reference"].ruling) == "passes"


def test_the_curve_of_a_run_by_hand():
    log = cases.run(epochs=3)
    rows = [row.model_copy(update={"time_epoch": float(row.epoch)}) for row in log.epochs]
    rows[1] = rows[1].model_copy(update={"test_accuracy": None})
    log = type(log)(log.name, log.header, tuple(rows))
    run = Reader((), Assumptions()).read(log)
    for curve in (curve_of(log), curve_of(run)):
        assert list(curve.epoch) == [0, 1, 2, 3]
        assert curve.accuracies == {row.epoch: row.test_accuracy for row in rows if row.epoch != 1}
        assert curve.seconds_after(1) == 2.0 + 3.0
        assert curve.seconds_after(3) is None
    rows[2] = rows[2].model_copy(update={"time_epoch": None})
    assert curve_of(type(log)(log.name, log.header, tuple(rows))).seconds_after(1) is None


def test_a_copy_is_still_known_as_a_copy_and_another_log_of_the_run_is_not(tmp_path):
    folder = write(cases.healthy("dfa"), tmp_path)
    first = min(folder.glob("dfa-s*"))
    shutil.copy(first, folder / "z-copy.jsonl")
    (cell,) = [cell for cell in audit(folder, keep_rows=False).cells if cell.verdict is not None]
    assert any("the same run stands in z-copy.jsonl too" in text for text in cell.to_dict()["problems"])
    lines = first.read_text().splitlines()
    row = json.loads(lines[1])
    lines[1] = json.dumps(row | {"error": 2.5})  # the first epoch, of which the reading keeps next to nothing
    (folder / "z-copy.jsonl").write_text("\n".join(lines) + "\n")
    (skipped,) = audit(folder, keep_rows=False).skipped
    assert skipped.file.endswith("z-copy.jsonl")
    assert "which is judged instead" in skipped.why


def test_a_log_at_hand_and_its_file_are_one_run(tmp_path):
    folder = write(cases.healthy("dfa"), tmp_path)
    logs = load_logs(folder).logs
    found = audit([*logs, folder], keep_rows=False)
    assert sum(len(cell.cell.runs) for cell in found.cells) == len(logs)
    assert found.skipped == ()
    kept = {run.name: run for cell in found.cells for run in cell.cell.runs}
    assert all(kept[log.name].epochs == log.epochs for log in logs)  # the log at hand, as it is


@pytest.mark.parametrize("protocol", ["standard", "standard@1", "published"])
def test_what_lies_in_a_file_until_it_is_judged_changes_nothing(protocol, tmp_path, monkeypatch):
    folder = write([*cases.healthy("dfa"), *cases.healthy("fa")], tmp_path)
    whole = audit(folder, protocol)
    monkeypatch.setattr(readings, "Spill", lambda: Spill(0))
    read = audit(folder, protocol, keep_rows=False)
    slots = [slot for cell in read.cells for run in cell.cell.runs for slot in (run.curve, run.correct)]
    assert all(slot.on_disk for slot in slots)
    assert read.to_dict() == whole.to_dict()
    assert read.to_text() == whole.to_text()


def test_a_run_more_costs_a_few_kilobytes_however_long_its_log(monkeypatch):
    monkeypatch.setattr(readings, "Spill", lambda: Spill(0))
    reader = Reader(protocol_named("standard").checks, Assumptions())

    def held(epochs, seeds):
        tracemalloc.start()
        kept = [reader.read(cases.run(epochs=epochs, seed=seed)) for seed in seeds]
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size / len(kept)

    held(4, range(2))  # what all runs share
    short, long = held(4, range(2, 6)), held(200, range(6, 10))
    assert short < 16_000
    assert long < 1.1 * short
