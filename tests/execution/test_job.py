"""One fleet as a job: what comes back, and what counts as out of memory."""

import json
from dataclasses import replace

import pytest
import torch
from cases.sweeps import tiny_runs

from creditscope.engine.fleet import Fleet
from creditscope.execution import job as jobs
from creditscope.execution.job import FleetJob, Outcome, is_out_of_memory, train_away
from creditscope.execution.local import hold
from creditscope.records import RunLog


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("spec"))


def job_of(runs, data="synthetic"):
    return FleetJob(1, tuple(runs), data, device="cpu", threads=1)


def test_a_job_hands_back_complete_logs_and_checkpoints(runs, tmp_path):
    outcome = train_away(job_of(runs[:2]))
    assert (outcome.error, outcome.out_of_memory) == (None, False)
    assert set(outcome.files) == {f"{run.run_id}{kind}" for run in runs[:2] for kind in (".jsonl", ".safetensors")}
    for name, data in outcome.files.items():
        (tmp_path / name).write_bytes(data)
    assert all(RunLog.read(path).finished for path in tmp_path.glob("*.jsonl"))


def test_threads_are_as_asked_and_then_as_before(runs):
    before = torch.get_num_threads()
    files = train_away(FleetJob(1, tuple(runs[:1]), "synthetic", device="cpu", threads=2)).files
    assert b'"threads": 2' in files[f"{runs[0].run_id}.jsonl"]
    assert torch.get_num_threads() == before


def test_a_mistake_of_the_user_is_an_outcome_not_a_traceback(runs):
    assert train_away(job_of(runs, "missing.npz")).error == "missing.npz: no such file; wanted an .npz with x_train, " \
        "y_train, x_test, y_test"  # fmt: skip
    assert "content hash differs" in train_away(job_of(runs, "fashion-mini")).error


def test_a_fleet_that_does_not_fit_is_said_and_other_errors_are_not_hidden(runs, monkeypatch):
    def fail(error):
        def train(*args, **kwargs):
            raise error

        monkeypatch.setattr(jobs, "train", train)
        return train_away(job_of(runs))

    assert fail(torch.OutOfMemoryError("CUDA out of memory")) == Outcome(out_of_memory=True)
    with pytest.raises(RuntimeError, match="a bug"):
        fail(RuntimeError("a bug"))


def test_what_counts_as_out_of_memory():
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)


def test_an_error_that_follows_on_it_counts_and_ctrl_c_does_not():
    for after, counts in ((ValueError("cannot save"), True), (KeyboardInterrupt(), False)):
        after.__context__ = MemoryError()
        assert is_out_of_memory(after) == counts


def test_halves_are_the_whole(runs):
    first, second = job_of(runs[:3]).halves()
    assert (len(first.specs), first.specs + second.specs) == (1, tuple(runs[:3]))


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


def lose_at(epoch, job, monkeypatch):
    with monkeypatch.context() as patch:
        epochs_trained(patch, stop_at=epoch)
        with pytest.raises(SystemExit):
            train_away(job)


def test_a_lost_fleet_goes_on_in_the_shared_folder(runs, tmp_path, monkeypatch):
    job = job_of(runs)
    wanted = train_away(job).files
    shared = replace(job, scratch=tmp_path / "shared")
    lose_at(2, shared, monkeypatch)
    (folder,) = (tmp_path / "shared").iterdir()
    assert sorted(path.name for path in folder.glob("*.safetensors")) == sorted(f"{r.run_id}.safetensors" for r in runs)
    seen = epochs_trained(monkeypatch)
    found = train_away(shared).files
    assert seen == [2]
    assert timeless(found) == timeless(wanted)
    assert list((tmp_path / "shared").iterdir()) == []


def test_where_a_machine_that_was_cut_off_still_trains_the_fleet_begins_apart(runs, tmp_path, monkeypatch):
    shared = replace(job_of(runs), scratch=tmp_path)
    lose_at(2, shared, monkeypatch)
    (folder,) = tmp_path.iterdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    seen = epochs_trained(monkeypatch)
    with hold(folder, ".worker.lock"):
        found = train_away(shared).files
    assert seen == [1, 2]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert timeless(found) == timeless(train_away(job_of(runs)).files)


def test_a_fleet_that_did_not_fit_leaves_nothing(runs, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(Fleet, "begin_epoch", full)
    assert train_away(replace(job_of(runs), scratch=tmp_path)) == Outcome(out_of_memory=True)
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_that_cannot_be_written_is_one_line(runs, tmp_path):
    (tmp_path / "file").write_text("x")
    assert train_away(replace(job_of(runs), scratch=tmp_path / "file")).error == (
        "--scratch file: cannot be written by a worker (Not a directory); choose a folder that every machine sees"
    )


def timeless(files):
    """The rows of the logs, without the wall-clock keys."""
    rows = {name: [json.loads(line) for line in data.splitlines()] for name, data in files.items() if ".jsonl" in name}
    return {
        name: [{key: value for key, value in row.items() if not key.startswith("time_")} for row in each]
        for name, each in rows.items()
    }
