"""The Parquet sink, read back by pyarrow: the numbers of the log, typed."""

import csv

import pytest

import creditscope as cs

pytestmark = pytest.mark.peers


def read(path):
    from pyarrow import parquet

    return parquet.read_table(path)


def test_the_folder_reads_as_one_table_with_the_numbers_of_the_csv(tmp_path, logs, feed):
    with cs.log_to("csv,parquet", tmp_path) as sink:
        feed(sink, logs)
    table = read(tmp_path / "parquet")
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert {name: types.pop(name) for name in ("run", "method", "seed", "epoch", "status")} == {
        "run": "string",
        "method": "string",
        "seed": "int64",
        "epoch": "int64",
        "status": "string",
    }
    assert set(types.values()) == {"double"}
    lines = {(line["run"], line["epoch"]): line for line in table.to_pylist()}
    assert len(lines) == sum(len(log.epochs) for log in logs)
    for log in logs:
        with (tmp_path / "csv" / f"{log.spec.run_id}.csv").open(newline="") as file:
            for plain in csv.DictReader(file):
                line = lines[log.spec.run_id, int(plain["epoch"])]
                assert {name: cell for name, cell in line.items() if cell is not None and name in types} == {
                    name: float(cell) for name, cell in plain.items() if cell != "" and name in types
                }
                assert (line["status"], line["seed"]) == ("finished", 1)


def test_a_resumed_run_has_each_epoch_once(tmp_path, log, feed):
    feed(cs.log_to("parquet", tmp_path / "whole"), [log])
    feed(cs.log_to("parquet", tmp_path / "resumed"), [log], last=2)
    feed(cs.log_to("parquet", tmp_path / "resumed"), [log], first=2)
    whole, resumed = (read(tmp_path / name / "parquet").to_pylist() for name in ("whole", "resumed"))
    assert resumed == whole
    assert [line["epoch"] for line in resumed] == [0, 1, 2, 3, 4]
