"""Fleets in processes of their own: the same logs, heard in this process, stopped and resumed like any other."""

import json
import os
import signal

import pytest
import torch
from cases.fleets import context, features, images, spec, train_fleets

import creditscope as cs
from creditscope.errors import BadFile, CreditscopeError
from creditscope.execution import calibrate, local, processes
from creditscope.execution.calibrate import process_count
from creditscope.execution.context import Quiet
from creditscope.execution.folder import open_folder
from creditscope.execution.plan import PLAN_FILE, read_plan
from creditscope.execution.worker import load_saved, save_data
from creditscope.records import RunLog

METHODS = ("bp", "fa", "dfa-rms")


@pytest.fixture
def several(monkeypatch):
    """As if the calibration had chosen two processes."""
    monkeypatch.setattr(local, "process_count", lambda context, fleets: (2, None))


def rows_of(folder, run):
    """A log without what differs between two trainings of the same run: the clock, and who trained beside it."""
    lines = [json.loads(line) for line in (folder / f"{run.run_id}.jsonl").read_text().splitlines()]
    for line in lines:
        for key in [key for key in line if key.startswith("time_") or key in ("fleet", "threads")]:
            del line[key]
    return lines


def test_a_fleet_is_dealt_out_and_each_part_is_as_trained_here(tmp_path, several):
    runs = [spec(method, images(), augment="crop4+flip") for method in METHODS]
    there = tmp_path / "there"
    cs.train(runs, there, data=images())
    assert {len(RunLog.read(there / f"{run.run_id}.jsonl").header.fleet) for run in runs} == {2, 1}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for part in (runs[::2], runs[1::2]):
            train_fleets(context(open_folder(tmp_path / "here"), load=lambda spec: images()), [part])
    finally:
        torch.set_num_threads(threads)
    for run in runs:
        assert rows_of(there, run) == rows_of(tmp_path / "here", run)


def test_rows_steps_and_stops_pass_between_the_processes(tmp_path, several):
    heard, steps = [], []

    class Progress(Quiet):
        def step(self, members):
            steps.append(members[0].run_id)

    def on_row(header, row):
        heard.append((header.spec.run_id, row.kind, row.epoch))
        return "enough" if row.kind == "epoch" and row.epoch == 2 and header.spec.rule == "fa" else None

    runs = [spec(method) for method in METHODS]
    logs = cs.train(runs, tmp_path, data=features(), on_row=on_row, progress=Progress())
    assert [(log.end.status, log.end.epoch) for log in logs] == [("finished", 4), ("stopped", 2), ("finished", 4)]
    assert logs[1].end.reason == "enough"
    assert heard.count((runs[0].run_id, "epoch", 4)) == 1
    assert len(steps) == 4 * 5 + 2 * 5, "the part whose only run stopped goes no further"


def test_an_error_in_a_process_is_raised_here(tmp_path, several):
    runs = [spec(method) for method in METHODS]
    cs.train(runs, tmp_path, data=features())
    for run in runs:
        path = tmp_path / f"{run.run_id}.jsonl"
        path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"end"' not in line))
    (tmp_path / f"{runs[0].run_id}.jsonl").write_text("{}\n")
    with pytest.raises(BadFile):
        cs.train(runs, tmp_path, data=features(), resume=True)


@pytest.fixture
def started(monkeypatch):
    """The training processes, as they are started."""
    seen = []
    begin = processes.WorkerProcess.__init__

    def began(worker, *given):
        begin(worker, *given)
        seen.append(worker.process)

    monkeypatch.setattr(processes.WorkerProcess, "__init__", began)
    return seen


def test_a_killed_process_is_said_and_its_fleet_goes_on_later(tmp_path, several, started):
    def on_row(header, row):
        if row.kind == "epoch" and row.epoch == 1 and started[0].poll() is None:
            os.kill(started[0].pid, signal.SIGKILL)

    runs = [spec(method) for method in METHODS]
    said = "a training process ended by signal 9; what it had saved is kept, go on with resume=True"
    with pytest.raises(CreditscopeError, match=said):
        cs.train(runs, tmp_path, data=features(), on_row=on_row)
    assert all(process.poll() is not None for process in started), "the others came to their end"
    assert all(log.finished for log in cs.train(runs, tmp_path, data=features(), resume=True))


def test_ctrl_c_calls_every_process_off(tmp_path, several):
    def on_row(header, row):
        if row.kind == "epoch" and row.epoch == 2:
            raise KeyboardInterrupt

    runs = [spec(method) for method in METHODS]
    with pytest.raises(KeyboardInterrupt):
        cs.train(runs, tmp_path, data=features(), on_row=on_row)
    planned = read_plan(tmp_path)
    assert planned.processes == 2
    assert [(len(fleet.runs), fleet.threads) for fleet in planned.fleets] == [(2, 1), (1, 1)]
    whole = cs.train(runs, tmp_path, data=features(), resume=True)
    assert all(log.finished and len(log.epochs) == 5 for log in whole)
    assert not (tmp_path / PLAN_FILE).exists(), "all of it is done"


def test_data_goes_through_a_file_as_it_is(tmp_path):
    for number, data in enumerate((features(), images())):
        again = load_saved(save_data(data, tmp_path / f"{number}.npz"))
        assert again.spec == data.spec
        assert torch.equal(again.x_train, data.x_train)
        assert torch.equal(again.mean, data.mean)


@pytest.mark.parametrize(
    ("cores", "share", "threads", "count"), [(2, 0.5, 2, 2), (2, 2.0, 2, 1), (1, 0.5, 1, 1), (2, 0.5, 1, 1)]
)
def test_the_calibration_decides(monkeypatch, tmp_path, cores, share, threads, count):
    """A clock that says 1 for the whole fleet and ``share`` for a part of it."""
    monkeypatch.setattr(calibrate, "PROCESS_SECONDS", 0.0)
    monkeypatch.setattr(calibrate, "FEW_STEPS", 0)
    monkeypatch.setattr(calibrate.os, "sched_getaffinity", lambda who: set(range(cores)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(calibrate, "step_seconds", lambda fleet: 1.0 if len(fleet.specs) == 3 else share)
    assert process_count(context(tmp_path), [[spec(method) for method in METHODS]])[0] == count
