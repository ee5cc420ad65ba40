"""Running a sweep: what is done again and what never, memory, locks, the store, and logs that lie."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from cases.fleets import context
from cases.sweeps import contents, ends, tiny_runs, write_tiny
from safetensors.torch import load_file

import creditscope as cs
from creditscope.data import load_data
from creditscope.errors import BadFile, BadInput, CannotWrite
from creditscope.execution.context import Quiet, TrainContext
from creditscope.execution.folder import hold
from creditscope.execution.in_process import InProcess
from creditscope.execution.job import Ended, Outcome
from creditscope.execution.plan import PLAN_FILE, Limits, read_plan, survey
from creditscope.execution.remote import RemoteContext, train_away
from creditscope.execution.run import run as run_plan


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("spec"))


@pytest.fixture(scope="module")
def undisturbed(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run_here(plan(runs, folder), folder)
    return folder


def plan(runs, folder, fleet_size=2, resume=True, limit=None):
    return survey(folder, runs, resume, Limits(bytes=limit, runs=fleet_size)).plan(threads=1)


def here(folder):
    return InProcess(context(folder, load=lambda spec: load_data("synthetic"), resume=True))


def run_here(planned, folder):
    return run_plan(planned, here(folder), folder, Quiet())


def run_away(planned, folder, executor=None):
    return run_plan(planned, executor or Away(), folder, Quiet())


class Away:
    """An executor in this process that trains in scratch folders, as Ray's tasks do."""

    keeps_files = False

    def __init__(self, fit=99):
        self.queue, self.observation, self.fit = [], [], fit

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def takes(self, job):
        return len(self.queue) < 2

    def submit(self, job):
        self.queue.append(job)

    def next_end(self):
        job = self.queue.pop()
        self.observation.append(job.run_ids)
        remote = RemoteContext({"synthetic": "synthetic"}, device="cpu")
        return Ended(job, train_away(job, remote) if len(job.specs) <= self.fit else Outcome(out_of_memory=True))


def test_every_run_finishes_once_and_nothing_is_done_again(runs, undisturbed):
    assert ends(undisturbed) == {f"{run.run_id}.jsonl": ["finished"] for run in runs}
    before = {path.name: path.read_bytes() for path in undisturbed.glob("*.*")}
    again = plan(runs, undisturbed)
    assert (again.jobs, again.done) == ((), {run.run_id for run in runs})
    logs = run_away(again, undisturbed)
    assert {path.name: path.read_bytes() for path in undisturbed.glob("*.*")} == before
    assert [log.spec.run_id for log in logs] == [run.run_id for run in runs]


def test_what_is_handed_back_equals_what_is_trained_in_place(runs, undisturbed, tmp_path):
    run_away(plan(runs, tmp_path), tmp_path)
    assert contents(tmp_path) == contents(undisturbed)
    for run in runs:
        name = f"{run.run_id}.safetensors"
        ours, theirs = (load_file(folder / name) for folder in (tmp_path, undisturbed))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_sweep_that_was_cut_short_does_only_the_rest(runs, undisturbed, tmp_path):
    first = plan(runs, tmp_path)
    run_away(replace(first, runs=first.jobs[0].specs, jobs=first.jobs[:1]), tmp_path)
    done = {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    rest = plan(runs, tmp_path)
    assert [job.run_ids for job in rest.jobs] == [first.jobs[1].run_ids]
    run_away(rest, tmp_path)
    assert contents(tmp_path) == contents(undisturbed)
    assert {name: (tmp_path / name).read_bytes() for name in done} == done


def test_without_resume_a_folder_that_holds_runs_is_refused(runs, undisturbed):
    with pytest.raises(CannotWrite, match="already holds 4 of these 4 runs"):
        plan(runs, undisturbed, resume=False)


def test_a_fleet_that_does_not_fit_is_halved_until_it_does(runs, undisturbed, tmp_path):
    away = Away(fit=1)
    run_away(plan(runs, tmp_path, fleet_size=None), tmp_path, away)
    assert [len(ids) for ids in away.observation] == [4, 2, 1, 1, 2, 1, 1]
    assert ends(tmp_path) == ends(undisturbed)


def test_a_run_that_does_not_fit_alone_is_named_and_the_others_go_on(runs, tmp_path):
    class Picky(Away):
        def next_end(self):
            job, outcome = super().next_end()
            too_big = runs[0].run_id in job.run_ids
            return Ended(job, Outcome(out_of_memory=True) if too_big else outcome)

    with pytest.raises(BadInput, match=f"{runs[0].run_id} alone does not fit into the memory"):
        run_away(plan(runs, tmp_path), tmp_path, Picky())
    assert sorted(ends(tmp_path)) == sorted(f"{run.run_id}.jsonl" for run in runs[1:])


def test_memory_that_runs_out_here_starts_the_halves_anew(runs, undisturbed, tmp_path, monkeypatch):
    real, plans = TrainContext.build, []

    def short(self, members, fused=False):
        plans.append([len(fleet.runs) for fleet in read_plan(tmp_path).fleets])
        if len(members) > 1:
            (tmp_path / f"{members[0].run_id}.jsonl").write_text("half a fleet")
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory")
        return real(self, members, fused)

    planned = plan(runs, tmp_path)
    monkeypatch.setattr(TrainContext, "build", short)
    run_here(planned, tmp_path)
    assert ends(tmp_path) == ends(undisturbed)
    assert plans == [[2, 2], [1, 1, 2], [1, 1, 2], [1, 1, 2], [1, 1, 1, 1], [1, 1, 1, 1]], "each is written down first"
    assert not (tmp_path / PLAN_FILE).exists()


def test_a_plan_that_outlived_its_fleets_goes(runs, undisturbed, tmp_path):
    """Killed between the last end row and the end: the file is all that is left to do."""
    folder = shutil.copytree(undisturbed, tmp_path / "runs")
    plan(runs, tmp_path / "empty").write(folder)
    assert run_here(plan(runs, folder), folder)[0].finished
    assert not (folder / PLAN_FILE).exists()


def test_a_fleet_that_was_begun_is_not_halved(runs, tmp_path):
    (job,) = plan(runs[:2], tmp_path).jobs
    begun = replace(plan(runs[:2], tmp_path), jobs=(replace(job, begun=True),))
    with pytest.raises(BadInput, match="was begun with more memory than there is now; free some"):
        run_away(begun, tmp_path, Away(fit=0))


def test_a_failed_fleet_does_not_stop_the_others(runs, tmp_path):
    class Unlucky(Away):
        def next_end(self):
            job, outcome = super().next_end()
            return Ended(job, Outcome(error=BadFile("no such data")) if job.number == 1 else outcome)

    with pytest.raises(BadFile, match="no such data; what finished is kept, and resume=True does the rest") as caught:
        run_away(plan(runs, tmp_path), tmp_path, Unlucky())
    assert caught.value.with_flags == "no such data; what finished is kept, and --resume does the rest"
    assert list(ends(tmp_path).values()) == [["finished"], ["finished"]]


def test_fleets_are_cut_by_memory_and_begun_ones_are_not(runs, tmp_path):
    assert [len(job.specs) for job in plan(runs, tmp_path, fleet_size=None, limit=1).jobs] == [1, 1, 1, 1]
    (whole,) = plan(runs, tmp_path, fleet_size=None).jobs
    run_here(plan(runs, tmp_path, fleet_size=None), tmp_path)
    assert len(whole.specs) == 4
    for one in runs:
        path = tmp_path / f"{one.run_id}.jsonl"
        path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:-1]))
    assert [len(job.specs) for job in plan(runs, tmp_path, fleet_size=1).jobs] == [4]


def test_two_writers_on_one_folder_do_not_tread_on_each_other(runs, tmp_path):
    for again in (lambda: cs.sweep(write_tiny(tmp_path), tmp_path), lambda: cs.train(runs, tmp_path)):
        with hold(tmp_path), pytest.raises(CannotWrite, match="another creditscope is training there") as caught:
            again()
        assert str(caught.value).startswith(f"out={tmp_path.name!r}: ")
        assert caught.value.with_flags.startswith(f"--out {tmp_path.name}: ")
    with hold(tmp_path):
        pass


# From a script


def test_a_sweep_from_a_script_is_trained_as_by_train(runs, tmp_path):
    heard = []

    class Progress(Quiet):
        def plan(self, plan):
            heard.append([len(job.specs) for job in plan.jobs])

    logs = cs.sweep(write_tiny(tmp_path), tmp_path / "sweep", device="cpu", progress=Progress())
    again = cs.train(runs, tmp_path / "train", device="cpu", progress=Progress())
    assert heard == [[4], [4]]
    assert [log.spec.run_id for log in logs] == [log.spec.run_id for log in again] == [run.run_id for run in runs]
    assert contents(tmp_path / "sweep") == contents(tmp_path / "train")


def test_a_sweep_can_be_a_mapping_and_only_planned(tmp_path):
    plans = []

    class Progress(Quiet):
        def plan(self, plan):
            plans.append(plan)

    wanted = {"data": "synthetic", "methods": ["bp"], "seeds": [1, 2, 3], "set": {"width": 8, "batch": 512}}
    assert cs.sweep(wanted, tmp_path / "runs", dry_run=True, fleet_size=2, progress=Progress()) == []
    assert [len(job.specs) for job in plans[0].jobs] == [2, 1]
    assert not (tmp_path / "runs").exists()
    with pytest.raises(BadFile, match="no such setting; did you mean 'width'"):
        cs.sweep({**wanted, "set": {"widht": 8}}, tmp_path / "runs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "slurm"}, "on='slurm': wanted local or ray"),
        ({"device": "tpu"}, "device='tpu': wanted auto, cpu or cuda"),
        ({"on": "ray", "on_row": print}, "on_row=: rows on other machines are not heard"),
    ],
)
def test_bad_arguments_are_named_as_a_script_names_them(tmp_path, options, message):
    with pytest.raises(BadInput) as caught:
        cs.sweep(write_tiny(tmp_path), tmp_path / "runs", **options)
    assert message in str(caught.value)
    assert not (tmp_path / "runs").exists()


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
        def next_end(self):
            job, outcome = super().next_end()
            return Ended(job, Outcome(outcome.files | {"../evil": b"x", "other.jsonl": b"x"}))

    folder = tmp_path / "runs"
    folder.mkdir()
    run_away(plan(runs, folder), folder, Hostile())
    assert not (tmp_path / "evil").exists()
    assert sorted(path.stem for path in folder.glob("*.jsonl")) == sorted(run.run_id for run in runs)
