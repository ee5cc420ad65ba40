"""One fleet as a job: what comes back, and what counts as out of memory."""

import pytest
import torch
from cases.sweeps import tiny_runs

from creditscope.records import RunLog
from creditscope.sweeps import job as jobs
from creditscope.sweeps.job import FleetJob, Outcome, is_out_of_memory, train_away


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
