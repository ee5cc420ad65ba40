"""RunLog and LogWriter: what is read, what is refused and in which words, and what a failing disk leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases.specs import end, epoch, header, probe, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.errors import BadFile, CannotWrite
from creditscope.records import EndRow, EpochRow, LogWriter, ProbeRow, RunLog, engine_spec, write_atomic
from creditscope.records import log as log_module
from creditscope.records.log import _encode
from creditscope.records.rows import SCHEMA_VERSION


@pytest.fixture
def path(tmp_path):
    return tmp_path / "dfa-s42-0123abcd.jsonl"


def lines_of(*rows):
    return b"".join(_encode(row) for row in rows)


def refused(path, content=None):
    """The message with which a file is refused."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadFile) as caught:
        RunLog.read(path)
    text = str(caught.value)
    assert text.startswith(path.name)
    assert "\n" not in text
    assert str(path.parent) not in text
    return text.removeprefix(f"{path.name}: ")


# Reading


def test_a_log_is_read_back_as_written(path):
    writer = LogWriter(path)
    writer.create(header())
    for row in (epoch(0), probe(0), epoch(1), probe(1), end(1)):
        writer.append(row)
    log = RunLog.read(path)
    assert log == RunLog(path.name, header(), (epoch(0), epoch(1)), (probe(0), probe(1)), end(1))
    assert log.spec == header().spec
    assert log.finished
    assert log.last == epoch(1)


@settings(max_examples=15)
@given(st.lists(rows_of(EpochRow), max_size=3), st.lists(rows_of(ProbeRow), max_size=2), st.none() | rows_of(EndRow))
def test_any_log_round_trips(tmp_path_factory, epochs, probes, last):
    epochs = [row.model_copy(update={"epoch": i}) for i, row in enumerate(epochs)]
    probes = [row.model_copy(update={"epoch": i}) for i, row in enumerate(probes)]
    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    log = RunLog("run.jsonl", header(), tuple(epochs), tuple(probes), last)
    writer = LogWriter(path)
    writer.create(log.header)
    for row in list(log.rows())[1:]:
        writer.append(row)
    assert RunLog.read(path) == log


def test_rows_stand_in_the_order_of_epochs(path):
    log = RunLog("x", header(), (epoch(0), epoch(1)), (probe(1), probe(0)), end(1))
    assert [(row.kind, getattr(row, "epoch", None)) for row in log.rows()] == [
        ("header", None),
        ("epoch", 0),
        ("probe", 0),
        ("epoch", 1),
        ("probe", 1),
        ("end", 1),
    ]


def test_a_log_without_an_end_is_unfinished(path):
    path.write_bytes(lines_of(header()))
    log = RunLog.read(path)
    assert (log.finished, log.last, log.end, log.problems) == (False, None, None, ())
    path.write_bytes(lines_of(header(), epoch(0), EndRow(status="diverged", epoch=0)))
    assert not RunLog.read(path).finished


@pytest.mark.parametrize("missing", [1, 20])
def test_a_torn_last_line_is_dropped_and_reported(path, missing):
    path.write_bytes(lines_of(header(), epoch(0), epoch(1))[:-missing])
    log = RunLog.read(path)
    assert log.epochs == (epoch(0),)
    assert log.problems == ("line 3 is torn (the writer was killed) and was dropped",)


def test_a_probe_may_be_appended_after_the_end(path):
    path.write_bytes(lines_of(header(), epoch(0), end(0), probe(0)))
    assert RunLog.read(path).probes == (probe(0),)


def test_carriage_returns_and_a_byte_order_mark_are_tolerated(path):
    path.write_bytes(b"\xef\xbb\xbf" + lines_of(header(), epoch(0)).replace(b"\n", b"\r\n"))
    assert RunLog.read(path).epochs == (epoch(0),)


# Refusing


def test_a_missing_file(path):
    wanted = "cannot be read (No such file or directory); check the path and its permissions"
    assert refused(path) == wanted


def test_a_folder(tmp_path):
    wanted = "not a regular file; give log files or folders"
    assert refused(tmp_path).endswith(wanted)


def test_an_empty_file_and_a_torn_header(path):
    wanted = "wanted a header row on line 1, found none: the file is empty or torn"
    assert refused(path, b"") == wanted
    assert refused(path, lines_of(header())[:50]) == wanted


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\x01\xff\xfe garbage\n", "line 1 is not JSON ("),
        (b"\xff\xff\xff\n", "line 1 is not JSON ("),
        (b"{'kind': 'header'}\n", "line 1 is not JSON (Expecting property name"),
        (b"\n", "line 1 is not JSON (Expecting value"),
        (b"[" * 100_000 + b"\n", "line 1 is not JSON ("),
        (b"[1, 2]\n", "line 1: "),
        (b"3\n", "line 1: "),
        (b'{"epoch": 1}\n', "line 1: Unable to extract tag using discriminator 'kind'"),
        (b'{"kind": "header"}\n', "line 1: header.spec: Field required"),
    ],
)
def test_garbage(path, content, message):
    assert refused(path, content).startswith(message)


def test_a_log_cut_in_the_middle_of_a_line(path):
    content = lines_of(header(), epoch(0), epoch(1))
    hole = content.index(b'{"kind": "epoch"')
    assert refused(path, content[: hole + 10] + content[hole + 30 :]).startswith("line 2 is not JSON (")


def test_a_header_elsewhere_or_twice(path):
    wanted = "wanted one header row, on line 1; is this a creditscope log?"
    assert refused(path, lines_of(epoch(0), header())) == f"line 1: {wanted}"
    assert refused(path, lines_of(header(), header())) == f"line 2: {wanted}"


@pytest.mark.parametrize("second", [1, 0])
def test_epochs_twice_or_backwards(path, second):
    wanted = f"line 3: epoch {second} follows epoch 1"
    assert refused(path, lines_of(header(), epoch(1), epoch(second))) == wanted


@pytest.mark.parametrize(("row", "kind"), [(epoch(1), "epoch"), (end(1), "end")])
def test_rows_after_the_end(path, row, kind):
    assert refused(path, lines_of(header(), end(0), row)) == f"line 3: a row of kind '{kind}' follows the end row"


def test_a_newer_version(path):
    content = json.loads(_encode(header())) | {"schema_version": 3, "new_field": 1}
    wanted = "log version 3, this creditscope reads up to 2; upgrade it"
    assert refused(path, json.dumps(content).encode() + b"\n") == wanted


def with_epoch(**fields):
    return lines_of(header()) + json.dumps({"kind": "epoch", "epoch": 0} | fields).encode() + b"\n"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden": {"median": [1, -2]}}, "epoch.hidden: Value error, a norm cannot be negative, got median[1] = -2.0"),
        (
            {"cosine": {"mean": [1.5], "status": ["ok"]}},
            "epoch.cosine: Value error, a cosine lies in [-1, 1], got mean[0] = 1.5",
        ),
        ({"test_accuracy": 34.9}, "epoch.test_accuracy: Input should be less than or equal to 1"),
        ({"test_accuracy": -0.1}, "epoch.test_accuracy: Input should be greater than or equal to 0"),
        ({"test_accuracy": "high"}, "epoch.test_accuracy: Input should be a valid number, unable to parse"),
        ({"epoch": -1}, "epoch.epoch: Input should be greater than or equal to 0"),
        ({"epoch": 0.5}, "epoch.epoch: Input should be a valid integer"),
        ({"speed": 1}, "epoch.speed: Extra inputs are not permitted"),
        ({"hidden": {"median": [-1]}, "error": "x"}, "epoch.hidden: Value error, a norm cannot be negative"),
    ],
)
def test_values_that_cannot_be(path, fields, message):
    assert refused(path, with_epoch(**fields)).startswith(f"line 2: {message}")


def test_more_than_one_problem_is_counted(path):
    assert refused(path, with_epoch(test_accuracy=2, epoch=-1)).endswith("(and 1 more)")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_are_not_json(path, constant):
    content = lines_of(header()) + b'{"kind": "epoch", "epoch": 0, "test_loss": %s}\n' % constant.encode()
    wanted = f"line 2 is not JSON (the constant {constant} is not JSON; a non-finite value is written as null)"
    assert refused(path, content) == wanted


def test_a_very_long_line_is_refused_before_it_is_parsed(path, monkeypatch):
    monkeypatch.setattr(log_module, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(log_module, "_parse", pytest.fail)
    assert refused(path, b"[" * 5000) == "line 1 is longer than 1000 bytes: not a creditscope log"


def test_no_log_of_ours_meets_that_limit():
    assert log_module.MAX_LINE_BYTES == 32 * 2**20


# Writing


def test_create_never_touches_an_existing_file(path):
    path.write_bytes(b"precious")
    with pytest.raises(CannotWrite) as caught:
        LogWriter(path).create(header())
    wanted = f"{path.name} exists; pass {{}} to go on with it, or choose another {{}}"
    assert str(caught.value) == wanted.format("resume=True", "out=")
    assert caught.value.with_flags == wanted.format("--resume", "--out")
    assert path.read_bytes() == b"precious"
    assert os.listdir(path.parent) == [path.name]


def test_create_loses_a_race_without_harm(path, monkeypatch):
    """Another writer takes the name between our look and our write."""
    real = os.fsync

    def other_writer(handle):
        path.write_bytes(b"the other's")
        real(handle)

    monkeypatch.setattr(log_module.os, "fsync", other_writer)
    with pytest.raises(CannotWrite, match=r"exists; pass resume=True"):
        LogWriter(path).create(header())
    assert path.read_bytes() == b"the other's"
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("taken", [False, True])
def test_create_on_a_file_system_without_hard_links(path, monkeypatch, taken):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(log_module.os, "link", no_links)
    if taken:
        path.write_bytes(b"precious")
        with pytest.raises(CannotWrite, match=r"exists; pass resume=True"):
            LogWriter(path).create(header())
        assert path.read_bytes() == b"precious"
    else:
        LogWriter(path).create(header())
        assert RunLog.read(path).header == header()
    assert os.listdir(path.parent) == [path.name]


def test_create_in_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CannotWrite, match=r"^cannot write run\.jsonl: No such file or directory; "):
        LogWriter(tmp_path / "none" / "run.jsonl").create(header())


def test_a_failed_atomic_write_leaves_the_old_file_and_no_scraps(path, monkeypatch):
    path.write_bytes(b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_module.os, "fsync", full)
    with pytest.raises(CannotWrite) as caught:
        write_atomic(path, b"new")
    assert caught.value.with_flags == (
        f"cannot write {path.name}: No space left on device; free space or choose another --out "
        "(what was written before is kept)"
    )
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_write_atomic_replaces(path):
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from cases.specs import epoch
from creditscope.errors import CannotWrite
from creditscope.records import LogWriter
path = Path({path!r})
room = path.stat().st_size + 40  # Enough for a part of the row: the write comes back short, then fails.
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
try:
    LogWriter(path).append(epoch(1))
except CannotWrite as error:
    message = str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
sys.stdout.write(message)
LogWriter(path).append(epoch(2))
"""


def test_a_row_that_no_longer_fits_leaves_the_earlier_rows_intact(path):
    """A real short write, by a limit on the size of files; when there is room again the log goes on."""
    path.write_bytes(lines_of(header(), epoch(0)))
    script = FILL_THE_DISK.format(tests=str(Path(__file__).parents[1]), path=str(path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {path.name}: File too large; free space or choose another out=")
    log = RunLog.read(path)
    assert log.epochs == (epoch(0), epoch(2))
    assert log.problems == ()


def test_append_needs_a_log(path):
    with pytest.raises(CannotWrite, match=r"^cannot write .*: No such file or directory; "):
        LogWriter(path).append(epoch(0))
    assert not path.exists()


def test_cut_after_keeps_what_a_checkpoint_covers(path):
    path.write_bytes(lines_of(header(), epoch(0), probe(0), epoch(1), probe(1), epoch(2), end(2)) + b'{"torn')
    kept = LogWriter(path).truncate_after(1)
    assert kept == (epoch(0), epoch(1))
    log = RunLog.read(path)
    assert (log.epochs, log.probes, log.end, log.problems) == (kept, (probe(0), probe(1)), None, ())
    LogWriter(path).append(epoch(2))
    assert RunLog.read(path).last == epoch(2)


def test_cut_before_the_first_epoch_leaves_the_header(path):
    path.write_bytes(lines_of(header(), epoch(0)))
    assert LogWriter(path).truncate_after(-1) == ()
    assert path.read_bytes() == lines_of(header())


# Golden logs: once written, readable for ever

GOLDEN = Path(__file__).parents[1] / "golden"
COMMITTED = Path(__file__).parents[2] / "results" / "cifar10-h200"
FIELDS = (
    *("model", "width", "depth", "terminal_ln", "view", "data", "classes", "targets", "epochs", "batch", "optimiser"),
    *("schedule", "augment", "dtype", "matmul", "probe"),
)


def test_a_log_of_version_1_still_loads_whole():
    log = RunLog.read(GOLDEN / "schema_v1.jsonl")
    lines = [json.loads(line) for line in (GOLDEN / "schema_v1.jsonl").read_bytes().splitlines()]
    lines[0]["spec"]["probe"]["epochs"] = lines[0]["spec"]["probe"].pop("dear")  # what version 2 calls it
    kept = [_only(json.loads(_encode(row)), line) for row, line in zip(log.rows(), lines, strict=True)]
    assert kept == lines
    assert log.spec.method == "dfa-rms+pen0.01@last2"
    assert log.epochs[0].cosine.status == ["ok", "zero-vector", "exact-by-construction"]
    assert log.probes[0].null.draws == [[0.0, 0.1], [0.2, None]]
    assert log.end.status == "finished"


def _only(row, line):
    """A row without the fields that its version did not have; none of them may say anything."""
    if not isinstance(row, dict):
        return row
    assert all(value is None for name, value in row.items() if name not in line)
    return {name: _only(value, line[name]) for name, value in row.items() if name in line}


def test_a_run_of_version_1_keeps_its_name_and_its_keys_for_ever():
    """The committed logs were named by version 1; a spec made today for the same run has the same name and keys."""
    for path in sorted(COMMITTED.glob("*.jsonl.gz")):
        spec = RunLog.read(path).spec
        assert path.name == f"{spec.run_id}.jsonl.gz"
        again = engine_spec(spec.method, **{name: getattr(spec, name) for name in FIELDS}, seed=spec.seed)
        assert (again.run_id, again.cell_key, again.match_key) == (spec.run_id, spec.cell_key, spec.match_key)


def test_the_golden_log_of_this_version_holds_every_field():
    log = RunLog.read(GOLDEN / f"schema_v{SCHEMA_VERSION}.jsonl")
    for row in log.rows():
        assert [name for name, value in row if value is None] == []


def test_of_two_rows_of_one_epoch_the_later_counts():
    rows = [probe(2), probe(0), probe(2).model_copy(update={"time_probe": 1.0}), probe(1)]
    assert log_module.latest(rows) is rows[2]
    assert log_module.latest([]) is None


def test_a_log_shows_itself_in_a_notebook_and_stays_text(tmp_path):
    name = '<script>alert("x")</script>.jsonl'
    log = RunLog(name, header("dfa"), (epoch(0, 0.125), epoch(1, 0.5)), (), end(1))
    shown = log._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    for text in ("dfa, seed", "finished", "0.1250", "0.5000"):
        assert text in shown


def test_the_wall_clock_runs_from_the_first_start_to_the_last_end():
    def run(created, seconds):
        begun = header().model_copy(update={"time_created": created})
        return RunLog("a.jsonl", begun, end=end(1).model_copy(update={"time_total": seconds}))

    early, late = run("2026-01-01T10:00:00+00:00", 400.0), run("2026-01-01T10:05:00+00:00", 60.5)
    assert log_module.wall_seconds([late, early]) == 400.0
    assert log_module.wall_seconds([late]) == 60.5
    assert log_module.wall_seconds([early, run("2026-01-01T10:06:00+00:00", 60.5)]) == 420.5
    for silent in (run(None, 1.0), run("2026-01-01T10:00:00+00:00", None), RunLog("b.jsonl", header())):
        assert log_module.wall_seconds([early, silent]) is None
