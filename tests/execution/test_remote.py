"""One fleet trained on any machine: what comes back, and a scratch folder that machines share."""

import json
from dataclasses import replace

import pytest
import torch
from cases.sweeps import tiny_runs

from creditscope.engine.fleet import Fleet
from creditscope.errors import BadInput
from creditscope.execution import remote as module
from creditscope.execution.folder import hold
from creditscope.execution.job import FleetJob, Outcome
from creditscope.execution.remote import RemoteContext, train_away
from creditscope.records import RunLog


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("spec"))


HERE = RemoteContext({"synthetic": "synthetic"}, device="cpu")


def job_of(runs, threads=1):
    return FleetJob(1, tuple(runs), threads)


def away(runs, **changes):
    return train_away(job_of(runs), replace(HERE, **changes))


def test_a_job_hands_back_complete_logs_and_checkpoints(runs, tmp_path):
    outcome = away(runs[:2])
    assert (outcome.error, outcome.out_of_memory) == (None, False)
    assert set(outcome.files) == {f"{run.run_id}{kind}" for run in runs[:2] for kind in (".jsonl", ".safetensors")}
    for name, data in outcome.files.items():
        (tmp_path / name).write_bytes(data)
    assert all(RunLog.read(path).finished for path in tmp_path.glob("*.jsonl"))


def test_threads_are_as_asked_and_then_as_before(runs):
    before = torch.get_num_threads()
    files = train_away(job_of(runs[:1], threads=2), HERE).files
    assert b'"threads": 2' in files[f"{runs[0].run_id}.jsonl"]
    assert torch.get_num_threads() == before


def test_a_mistake_of_the_user_is_an_outcome_not_a_traceback(runs):
    error = away(runs, data={"synthetic": "missing.npz"}).error
    assert str(error) == "missing.npz: no such file; wanted an .npz with x_train, y_train, x_test, y_test"
    assert "content hash differs" in str(away(runs, data={"synthetic": "fashion-mini"}).error)
    assert isinstance(away(runs, data={}).error, BadInput)


def test_a_fleet_that_does_not_fit_is_said_and_other_errors_are_not_hidden(runs, monkeypatch):
    def fail(error):
        def build(*args, **kwargs):
            raise error

        monkeypatch.setattr(module.TrainContext, "build", build)
        return away(runs)

    assert fail(torch.OutOfMemoryError("CUDA out of memory")) == Outcome(out_of_memory=True)
    with pytest.raises(RuntimeError, match="a bug"):
        fail(RuntimeError("a bug"))


# A scratch folder that machines share


def epochs_trained(monkeypatch, stop_at=None):
    """The epochs that are trained from now on; at one of them the worker is lost."""
    seen, real = [], Fleet.begin_epoch

    def begin_epoch(self, epoch):
        if epoch == stop_at:
            raise SystemExit("lost")
        seen.append(epoch)
        real(self, epoch)

    monkeypatch.setattr(Fleet, "begin_epoch", begin_epoch)
    return seen


def lose_at(epoch, job, remote, monkeypatch):
    with monkeypatch.context() as patch:
        epochs_trained(patch, stop_at=epoch)
        with pytest.raises(SystemExit):
            train_away(job, remote)


def test_a_lost_fleet_goes_on_in_the_shared_folder(runs, tmp_path, monkeypatch):
    job = job_of(runs)
    wanted = train_away(job, HERE).files
    shared = replace(HERE, scratch=tmp_path / "shared")
    lose_at(2, job, shared, monkeypatch)
    (folder,) = (tmp_path / "shared").iterdir()
    assert sorted(path.name for path in folder.glob("*.safetensors")) == sorted(f"{r.run_id}.safetensors" for r in runs)
    seen = epochs_trained(monkeypatch)
    found = train_away(job, shared).files
    assert seen == [2]
    assert timeless(found) == timeless(wanted)
    assert list((tmp_path / "shared").iterdir()) == []


def test_where_a_machine_that_was_cut_off_still_trains_the_fleet_begins_apart(runs, tmp_path, monkeypatch):
    job, shared = job_of(runs), replace(HERE, scratch=tmp_path)
    lose_at(2, job, shared, monkeypatch)
    (folder,) = tmp_path.iterdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    seen = epochs_trained(monkeypatch)
    with hold(folder):
        found = train_away(job, shared).files
    assert seen == [1, 2]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert timeless(found) == timeless(away(runs).files)


def test_a_fleet_that_did_not_fit_leaves_nothing(runs, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(Fleet, "begin_epoch", full)
    assert away(runs, scratch=tmp_path) == Outcome(out_of_memory=True)
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_that_cannot_be_written_is_one_line(runs, tmp_path):
    (tmp_path / "file").write_text("x")
    error = away(runs, scratch=tmp_path / "file").error
    said = ": cannot be written by a worker (Not a directory); choose a folder that every machine sees"
    assert str(error) == f"scratch='file'{said}"
    assert error.with_flags == f"--scratch file{said}"


def timeless(files):
    """The rows of the logs, without the wall-clock keys."""
    rows = {name: [json.loads(line) for line in data.splitlines()] for name, data in files.items() if ".jsonl" in name}
    return {
        name: [{key: value for key, value in row.items() if not key.startswith("time_")} for row in each]
        for name, each in rows.items()
    }
