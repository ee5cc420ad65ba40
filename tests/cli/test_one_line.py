"""Values that no training could take and files that want to steer the terminal: one clean line each."""

import os
import subprocess
import sys
import zipfile

import pytest
from cases import specs
from cases.sweeps import environment

from creditscope.data.npz import read_npz
from creditscope.errors import BadFile
from creditscope.execution.remeasure import probe_checkpoint
from creditscope.integrations.csv import CsvSink
from creditscope.records import LogWriter
from creditscope.records.table import csv_cell, visible

TRAIN = ("train", "--rules", "bp", "--seeds", "1", "--dry-run")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "width=200000"), "alone takes about"),
        (("--set", f"width={10**20}"), "width: Input should be less than or equal to"),
        (("--set", "depth=3000"), "depth: Input should be less than or equal to"),
        (("--epochs", f"{10**20}"), "epochs: Input should be less than or equal to"),
        (("--set", "probe.redraws=-1"), "redraws: Input should be greater than or equal to 0"),
        (("--rules", "bp@last" + "9" * 5000), "has 5007 characters, wanted at most"),
    ],
)
def test_a_setting_beyond_every_machine_is_one_line(creditscope, tmp_path, words, said):
    code, _, error = creditscope(*TRAIN, *words, "--out", tmp_path / "runs")
    assert code == 2
    (line,) = error.splitlines()
    assert said in line
    assert len(line) < 300
    assert not (tmp_path / "runs").exists()


def test_a_negative_number_of_redraws_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(Exception, match="redraws=-1: wanted a whole number from 0"):
        probe_checkpoint(tmp_path / "none.safetensors", redraws=-1)


@pytest.fixture
def steering(tmp_path):
    """A folder whose names and reasons hold escapes, a right-to-left override and bytes that are no UTF-8."""
    folder = tmp_path / "logs"
    folder.mkdir()
    writer = LogWriter(folder / "good\x1b[2J\u202e.jsonl")
    writer.create(specs.header("bp"))
    writer.append(specs.epoch(0))
    writer.append(specs.end(0).model_copy(update={"status": "stopped", "reason": "\x1b]0;owned\x07\u202egnorts"}))
    with open(os.fsencode(folder) + b"/bad\xff\x1b[31m.jsonl", "wb") as file:
        file.write(b"junk")
    return folder


@pytest.mark.parametrize("verb", ["ls", "show", "audit"])
def test_no_name_and_no_reason_steers_the_terminal(steering, verb):
    target = steering if verb != "show" else next(path for path in steering.iterdir() if path.name.startswith("good"))
    done = subprocess.run(
        [sys.executable, "-m", "creditscope", verb, target], capture_output=True, timeout=60, env=environment()
    )
    shown = done.stdout + done.stderr
    assert b"Traceback" not in shown
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert "\u202e" not in shown.decode()
    assert "�" in shown.decode()


@pytest.mark.parametrize(("stream", "code"), [(">&-", 0), ("2>&-", 0), ("> /dev/full", 2), ("| head -0", 0)])
def test_an_output_that_is_closed_or_full_is_no_traceback(steering, stream, code):
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m creditscope ls '{steering}' {stream}"], capture_output=True, timeout=60,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert code == 0 or b"the output cannot be written: No space left on device" in done.stderr


def test_what_a_spreadsheet_would_compute_is_text():
    assert [csv_cell(text) for text in ("=1+1", "+1", "-x", "@x", "dfa")] == ["'=1+1", "'+1", "'-x", "'@x", "dfa"]


def test_visible_text_keeps_spaces_and_shows_what_is_not_printable():
    assert visible("a\u00a0b\nc\x1b\u202e\ud800") == "a\u00a0b\nc���"


def test_a_damaged_lzma_archive_is_one_line(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x_train.npy", os.urandom(2000))
        for name in ("y_train", "x_test", "y_test"):
            archive.writestr(f"{name}.npy", b"x")
    data = bytearray(path.read_bytes())
    for at in range(60, 300):
        data[at] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BadFile, match=r"not a readable \.npz"):
        read_npz(path)


def test_csv_grows_by_the_line_and_reads_back_what_a_whole_table_holds(tmp_path, monkeypatch):
    sink, header, written = CsvSink(tmp_path), specs.header("bp"), []
    real = CsvSink.write
    monkeypatch.setattr(CsvSink, "write", lambda self, path, table: (written.append(1), real(self, path, table))[1])
    for number in range(50):
        sink.on_row(header, specs.epoch(number, accuracy=number / 50))
    assert len(written) == 1
    path = tmp_path / "csv" / f"{header.spec.run_id}.csv"
    grown = path.read_bytes()
    sink.write(path, sink._tables[header.spec.run_id])
    assert path.read_bytes() == grown
    path.write_bytes(grown[:-3])
    assert max(sink.read(path)) == 48, "a torn last line is dropped"
