"""Running a sweep: what is done again and what never, memory, locks, the store, and logs that lie."""

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from cases.sweeps import contents, ends, tiny_runs
from safetensors.torch import load_file

from creditscope.errors import BadFile, CannotWrite
from creditscope.execution.job import FleetJob, Outcome, train_away, train_job
from creditscope.execution.local import hold, train
from creditscope.execution.sweep import SWEEP_LOCK, InProcess, hold_sweep, plan_sweep, read_logs, run_sweep

SYNTHETIC = {"synthetic": "synthetic"}
CPU = FleetJob(0, (), "", device="cpu", threads=1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("spec"))


@pytest.fixture(scope="module")
def undisturbed(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run_sweep(plan(runs, folder), folder, InProcess(folder))
    return folder


def plan(runs, folder, **options):
    return plan_sweep(runs, folder, data=SYNTHETIC, job=CPU, **({"fleet_size": 2, "resume": True} | options))


class Away:
    """An executor in this process that trains in scratch folders, as Ray's tasks do."""

    keeps_files = False
    window = 2

    def __init__(self, fit=99):
        self.queue, self.observation, self.fit = [], [], fit

    def submit(self, job):
        self.queue.append(job)

    def result(self):
        job = self.queue.pop()
        self.observation.append(job.run_ids)
        return job, train_away(job) if len(job.specs) <= self.fit else Outcome(out_of_memory=True)


def test_every_run_finishes_once_and_nothing_is_done_again(runs, undisturbed):
    assert ends(undisturbed) == {f"{run.run_id}.jsonl": ["finished"] for run in runs}
    before = {path.name: path.read_bytes() for path in undisturbed.glob("*.*")}
    again = plan(runs, undisturbed)
    assert (again.jobs, again.done) == ((), {run.run_id for run in runs})
    run_sweep(again, undisturbed, Away())
    assert {path.name: path.read_bytes() for path in undisturbed.glob("*.*")} == before
    assert [log.spec.run_id for log in read_logs(again, undisturbed)] == [run.run_id for run in runs]


def test_what_is_handed_back_equals_what_is_trained_in_place(runs, undisturbed, tmp_path):
    run_sweep(plan(runs, tmp_path), tmp_path, Away())
    assert contents(tmp_path) == contents(undisturbed)
    for run in runs:
        name = f"{run.run_id}.safetensors"
        here, there = (load_file(folder / name) for folder in (tmp_path, undisturbed))
        assert here.keys() == there.keys()
        assert all(torch.equal(here[key], there[key]) for key in here)


def test_a_sweep_that_was_cut_short_does_only_the_rest(runs, undisturbed, tmp_path):
    first = plan(runs, tmp_path)
    run_sweep(replace(first, jobs=first.jobs[:1]), tmp_path, Away())
    done = {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    rest = plan(runs, tmp_path)
    assert [job.run_ids for job in rest.jobs] == [first.jobs[1].run_ids]
    run_sweep(rest, tmp_path, Away())
    assert contents(tmp_path) == contents(undisturbed)
    assert {name: (tmp_path / name).read_bytes() for name in done} == done


def test_without_resume_a_folder_that_holds_runs_is_refused(runs, undisturbed):
    with pytest.raises(CannotWrite, match="already holds 4 of these 4 runs"):
        plan(runs, undisturbed, resume=False)


def test_a_fleet_that_does_not_fit_is_halved_until_it_does(runs, undisturbed, tmp_path):
    away = Away(fit=1)
    run_sweep(plan(runs, tmp_path, fleet_size=None), tmp_path, away)
    assert [len(ids) for ids in away.observation] == [4, 2, 1, 1, 2, 1, 1]
    assert ends(tmp_path) == ends(undisturbed)


def test_a_run_that_does_not_fit_alone_is_named_and_the_others_go_on(runs, tmp_path):
    class Picky(Away):
        def result(self):
            job, outcome = super().result()
            too_big = runs[0].run_id in job.run_ids
            return job, Outcome(out_of_memory=True) if too_big else outcome

    with pytest.raises(BadFile, match=f"{runs[0].run_id} alone does not fit into the memory"):
        run_sweep(plan(runs, tmp_path), tmp_path, Picky())
    assert sorted(ends(tmp_path)) == sorted(f"{run.run_id}.jsonl" for run in runs[1:])


def test_memory_that_runs_out_here_starts_the_halves_anew(runs, undisturbed, tmp_path, monkeypatch):
    real = train_job

    def short(job, folder, progress=None):
        if len(job.specs) > 1:
            (folder / f"{job.run_ids[0]}.jsonl").write_text("half a fleet")
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory")
        real(job, folder, progress)

    monkeypatch.setattr("creditscope.execution.sweep.train_job", short)
    run_sweep(plan(runs, tmp_path), tmp_path, InProcess(tmp_path))
    assert ends(tmp_path) == ends(undisturbed)


def test_a_failed_fleet_does_not_stop_the_others(runs, tmp_path):
    class Unlucky(Away):
        def result(self):
            job, outcome = super().result()
            return job, Outcome(error="no such data") if job.number == 1 else outcome

    with pytest.raises(BadFile, match="no such data; what finished is kept, and --resume does the rest"):
        run_sweep(plan(runs, tmp_path), tmp_path, Unlucky())
    assert list(ends(tmp_path).values()) == [["finished"], ["finished"]]


def test_fleets_are_cut_by_memory_and_begun_ones_are_not(runs, tmp_path):
    assert [len(job.specs) for job in plan(runs, tmp_path, fleet_size=None, limit=1).jobs] == [1, 1, 1, 1]
    (whole,) = plan(runs, tmp_path, fleet_size=None).jobs
    train_job(whole, tmp_path)
    for run in runs:
        path = tmp_path / f"{run.run_id}.jsonl"
        path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:-1]))
    assert [len(job.specs) for job in plan(runs, tmp_path, fleet_size=1).jobs] == [4]


def test_two_sweeps_on_one_folder_do_not_tread_on_each_other(runs, tmp_path):
    with ExitStack() as first:
        hold_sweep(tmp_path, first, alone=True)
        with ExitStack() as second, pytest.raises(CannotWrite, match="another creditscope is training there"):
            hold_sweep(tmp_path, second, alone=False)
        with pytest.raises(CannotWrite, match="another creditscope is training there"):
            train(runs, tmp_path)
    with hold(tmp_path, SWEEP_LOCK):
        pass


# What a log says of itself is never trusted as a path.


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "a/../../outside", "..", "", "x\u0000\ny\u001b[2J", "a" * 300]
)
def test_a_log_cannot_lead_a_resume_out_of_its_folder(runs, undisturbed, tmp_path, name):
    folder = tmp_path / "runs"
    folder.mkdir()
    stem = runs[0].run_id
    for path in (tmp_path / "outside.jsonl", folder / f"{stem}.jsonl"):
        path.write_bytes((undisturbed / f"{stem}.jsonl").read_bytes())
    forge(folder / f"{stem}.jsonl", fleet=[stem, name])
    with pytest.raises(BadFile, match="missing") as caught:
        plan(runs, folder)
    assert str(caught.value).isprintable()


def test_a_log_that_holds_another_run_than_its_name_says_is_refused(runs, undisturbed, tmp_path):
    stem = runs[0].run_id
    for name in (stem, "liar"):
        (tmp_path / f"{name}.jsonl").write_bytes((undisturbed / f"{stem}.jsonl").read_bytes())
    forge(tmp_path / f"{stem}.jsonl", fleet=[stem, "liar"])
    with pytest.raises(BadFile, match=r"liar\.jsonl holds another run than its name says"):
        plan(runs, tmp_path)


def forge(path, **fields):
    """An unfinished log whose header says something else."""
    header, *rest = path.read_text().splitlines()
    lines = [json.dumps(json.loads(header) | fields), *rest[:-1]]
    path.write_text("".join(line + "\n" for line in lines))


def test_a_worker_cannot_choose_file_names(runs, tmp_path):
    class Hostile(Away):
        def result(self):
            job, outcome = super().result()
            return job, Outcome(outcome.files | {"../evil": b"x", "other.jsonl": b"x"})

    folder = tmp_path / "runs"
    folder.mkdir()
    run_sweep(plan(runs, folder), folder, Hostile())
    assert not (tmp_path / "evil").exists()
    assert sorted(path.stem for path in folder.glob("*.jsonl")) == sorted(run.run_id for run in runs)
