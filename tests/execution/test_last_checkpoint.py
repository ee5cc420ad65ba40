"""A run is done when its last checkpoint is there: written before the end row, and made again where it is lost."""

import json

import pytest
import torch
from cases.fleets import features, spec
from cases.sweeps import contents

import creditscope as cs
from creditscope.engine import loop
from creditscope.engine.checkpoint import FleetState, read_checkpoint
from creditscope.errors import BadFile, CannotWrite
from creditscope.execution.context import Quiet
from creditscope.execution.plan import survey
from creditscope.records import LogWriter, RunLog

RUNS = [spec(method, epochs=3) for method in ("bp", "kp", "dfa-rms")]


def train(out, resume=False, runs=RUNS, **more):
    return cs.train(runs, out, data=features(), device="cpu", resume=resume, **more)


def numbers(folder):
    """Every checkpoint's tensors, by file."""
    return {path.name: read_checkpoint(path)[0] for path in folder.glob("*.safetensors")}


def assert_equal(folder, other):
    assert contents(folder) == contents(other)
    ours, theirs = numbers(folder), numbers(other)
    assert ours.keys() == theirs.keys()
    for name, tensors in ours.items():
        assert all(torch.equal(tensor, theirs[name][key]) for key, tensor in tensors.items())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    train(folder)
    return folder


class Killed(BaseException):
    """As a kill -9 leaves the files: nothing is tidied up by us."""


@pytest.mark.parametrize("ends", range(3))
def test_killed_between_the_last_checkpoint_and_the_end_rows(tmp_path, undisturbed, monkeypatch, ends):
    real, written = LogWriter.append, []

    def append(self, row):
        if row.kind == "end":
            if len(written) == ends:
                raise Killed
            written.append(self.path.name)
        real(self, row)

    monkeypatch.setattr(LogWriter, "append", append)
    with pytest.raises(Killed):
        train(tmp_path)
    monkeypatch.undo()
    assert len(numbers(tmp_path)) == 3, "checkpoints come first"
    assert sum(RunLog.read(path).end is not None for path in tmp_path.glob("*.jsonl")) == ends
    steps = Steps()
    train(tmp_path, resume=True, progress=steps)
    assert steps.count == 0, "nothing is trained again"
    assert_equal(tmp_path, undisturbed)


class Steps(Quiet):
    count = 0

    def step(self, members):
        self.count += 1


def test_a_disk_that_is_full_for_the_last_checkpoint(tmp_path, undisturbed, monkeypatch):
    def full(self, folder):
        raise CannotWrite("the checkpoints cannot be replaced: No space left on device")

    monkeypatch.setattr(FleetState, "save", full)
    with pytest.raises(CannotWrite):
        train(tmp_path)
    monkeypatch.undo()
    assert all(RunLog.read(path).end is None for path in tmp_path.glob("*.jsonl"))
    train(tmp_path, resume=True)
    assert_equal(tmp_path, undisturbed)


@pytest.mark.parametrize("how", ["gone", "stale", "half"])
def test_a_finished_run_without_its_last_checkpoint_is_unfinished(tmp_path, undisturbed, monkeypatch, how, caplog):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1)
    train(tmp_path)
    path = tmp_path / f"{RUNS[1].run_id}.safetensors"
    data = path.read_bytes()
    path.unlink()
    if how == "stale":
        other = tmp_path / "other"
        with pytest.raises(KeyboardInterrupt):
            train(other, progress=Stopped())
        path.write_bytes((other / path.name).read_bytes())
        for file in other.iterdir():
            file.unlink()
        other.rmdir()
    elif how == "half":
        path.write_bytes(data[: len(data) // 2])
    assert survey(tmp_path, RUNS, resume=True).done == frozenset()
    train(tmp_path, resume=True)
    for left in tmp_path.glob("*.damaged"):
        left.unlink()
    assert_equal(tmp_path, undisturbed)
    assert "ended without its last checkpoint" in caplog.text or "not a readable checkpoint" in caplog.text


class Stopped(Quiet):
    def stage(self, members, epoch, doing):
        if (epoch, doing) == (3, "measure"):
            raise KeyboardInterrupt


def test_a_fleet_that_diverged_or_was_stopped_ends_after_its_checkpoint_too(tmp_path, monkeypatch):
    stop = {"on_row": lambda header, row: "enough" if row.kind == "epoch" and row.epoch == 2 else None}
    peace, war = tmp_path / "peace", tmp_path / "war"
    train(peace, **stop)
    monkeypatch.setattr(LogWriter, "append", _killed_at_the_end(LogWriter.append))
    with pytest.raises(Killed):
        train(war, **stop)
    monkeypatch.undo()
    steps = Steps()
    train(war, resume=True, progress=steps)
    assert steps.count == 0
    assert {row["reason"] for rows in contents(war).values() for row in rows if row["kind"] == "end"} == {"enough"}
    assert_equal(war, peace)


def _killed_at_the_end(real):
    def append(self, row):
        if row.kind == "end":
            raise Killed
        real(self, row)

    return append


def test_an_ending_that_nobody_knows_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(LogWriter, "append", _killed_at_the_end(LogWriter.append))
    with pytest.raises(Killed):
        train(tmp_path)
    monkeypatch.undo()
    real = read_checkpoint
    monkeypatch.setattr(
        "creditscope.engine.checkpoint.read_checkpoint",
        lambda path: (real(path)[0], real(path)[1] | {"ending": json.dumps(["won", None])}),
    )
    with pytest.raises(BadFile, match="says in no known way how the run ended"):
        train(tmp_path, resume=True)


def test_a_log_deleted_in_training_is_never_taken_up_in_the_middle(tmp_path, undisturbed):
    class Deleter(Quiet):
        def stage(self, members, epoch, doing):
            if (epoch, doing) == (2, "train"):
                (tmp_path / f"{RUNS[0].run_id}.jsonl").unlink()

    with pytest.raises(CannotWrite, match="No such file"):
        train(tmp_path, progress=Deleter())
    train(tmp_path, resume=True)
    for left in tmp_path.glob("*.damaged"):
        left.unlink()
    assert_equal(tmp_path, undisturbed)


def test_a_forged_fleet_list_trains_nothing_twice(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, progress=Stopped())
    path = tmp_path / f"{RUNS[0].run_id}.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    header = json.loads(first) | {"fleet": [RUNS[0].run_id]}
    path.write_text(json.dumps(header) + "\n" + "".join(rest))
    for order in (RUNS, RUNS[::-1]):
        with pytest.raises(BadFile, match="its header names a fleet whose other logs name another"):
            survey(tmp_path, order, resume=True)
