"""The CSV sink: what a spreadsheet reads is what the log says."""

import csv
import os

import pytest

import creditscope as cs
from creditscope.integrations import scalars


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def wanted(log):
    """Line by line, the long way round."""
    lines = []
    for row in log.epochs:
        numbers = dict(scalars(row))
        for probe in log.probes:
            numbers |= scalars(probe) if probe.epoch == row.epoch else {}
        numbers |= scalars(log.end) if log.end.epoch == row.epoch else {}
        lines.append(numbers)
    return lines


@pytest.fixture
def table(tmp_path):
    """The table of a run, and its numbers as floats."""

    def table(log):
        lines = read(tmp_path / "csv" / f"{log.spec.run_id}.csv")
        who = ("run", "method", "seed", "epoch", "status")
        return lines, [{k: float(v) for k, v in line.items() if k not in who and v != ""} for line in lines]

    return table


def test_one_line_an_epoch_with_the_numbers_of_the_log(tmp_path, logs, feed, table):
    with cs.log_to("csv", tmp_path) as sink:
        feed(sink, logs)
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == sorted(
        f"{log.spec.run_id}.csv" for log in logs
    )
    for log in logs:
        lines, numbers = table(log)
        assert numbers == wanted(log)
        assert [line["epoch"] for line in lines] == ["0", "1", "2", "3", "4"]
        assert {(line["run"], line["method"], line["seed"]) for line in lines} == {
            (log.spec.run_id, log.spec.method, "1")
        }
        assert {line["status"] for line in lines} == {"finished"}
        assert lines[0]["train_loss"] == ""


def test_a_reader_sees_each_epoch_at_once(tmp_path, log, feed, table):
    with cs.log_to("csv", tmp_path) as sink:
        feed(sink, [log], last=2)
        lines, numbers = table(log)
        assert numbers == wanted(log)[:3]
        assert {line["status"] for line in lines} == {"unfinished"}
    assert table(log)[1] == wanted(log)[:3]


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_resumed_run_has_each_epoch_once(tmp_path, log, feed, table, again):
    """Killed after epoch 2, it goes on from a checkpoint that may be older."""
    feed(cs.log_to("csv", tmp_path), [log], last=2)
    feed(cs.log_to("csv", tmp_path), [log], first=again)
    assert table(log)[1] == wanted(log)


def test_a_resumed_run_that_stops_earlier_keeps_nothing_of_later_epochs(tmp_path, log, feed, table):
    feed(cs.log_to("csv", tmp_path), [log], last=3)
    feed(cs.log_to("csv", tmp_path), [log], first=2, last=2)
    assert table(log)[1] == wanted(log)[:3]


def test_a_run_that_begins_again_begins_its_table_again(tmp_path, log, feed, table):
    feed(cs.log_to("csv", tmp_path), [log], last=3)
    feed(cs.log_to("csv", tmp_path), [log], last=1)
    assert table(log)[1] == wanted(log)[:2]


def test_a_probe_after_the_end_joins_its_epoch(tmp_path, log, feed, table):
    sink = cs.log_to("csv", tmp_path)
    feed(sink, [log])
    later = log.probes[-1].model_copy(update={"participation": [7.0, 8.0, 9.0]})
    sink(log.header, later)
    changed = wanted(log)
    changed[-1] |= {f"participation/state_{place}": 7.0 + place for place in range(3)}
    assert table(log)[1] == changed


def test_a_full_disk_leaves_the_last_whole_table(tmp_path, log, feed, table):
    said = []
    with cs.log_to("csv", tmp_path, said.append) as sink:
        feed(sink, [log], last=1)
        os.symlink("/dev/full", tmp_path / "csv" / f".{log.spec.run_id}.csv")
        feed(sink, [log], first=2)
    assert said == [
        "sink csv: OSError: [Errno 28] No space left on device; it gets no more rows, the run and its log go on"
    ]
    assert table(log)[1][:2] == wanted(log)[:2], "what was whole before stays whole"
