"""What other processes compile is what the fleet will ask the compiler for."""

import json
import subprocess
import sys
import time

import pytest
import torch
from cases.fleets import CPU, features, images, spec

from creditscope.engine import traced
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.sweeps import ahead, choose
from creditscope.sweeps.ahead import Ahead, compile_group
from creditscope.sweeps.local import train

RUNS = [
    spec(method, images(), seed=seed, augment="crop4+flip", dtype="float32")
    for method, seed in (("bp", 1), ("bp+pen0.1", 2), ("fa", 1), ("dfa-rms", 1), ("dfa-rms@frozen", 2))
]


def asked(monkeypatch, work):
    """The lists that a compiler is given, as text, with the shapes and strides of their arguments."""
    given = []

    def compiler(listed, dynamic):
        def call(*args):
            leaves = torch.utils._pytree.tree_leaves(args)
            given.append((listed.code, [(t.shape, t.stride(), t.dtype) for t in leaves]))
            return listed(*args)

        return call

    monkeypatch.setattr(traced.torch, "compile", compiler)
    work()
    return given


@pytest.mark.parametrize("data", [images(), features()], ids=["pictures", "features"])
def test_a_group_alone_is_what_it_is_in_its_fleet(monkeypatch, data):
    runs = RUNS if data is images() else [spec(run.method, data, seed=run.seed) for run in RUNS]
    fleet = Fleet(runs, data, default_model, CPU, fused=True)
    wanted = asked(monkeypatch, lambda: list(fleet.rehearse()))
    assert len(wanted) == len(fleet.groups) == 4
    groups = [fleet.specs[group.runs] for group in fleet.groups]
    assert asked(monkeypatch, lambda: [compile_group(specs, CPU) for specs in groups]) == wanted


def test_a_rehearsal_asks_for_what_training_asks_for(monkeypatch):
    fleet = Fleet(RUNS, images(), default_model, CPU, fused=True)
    rehearsed = asked(monkeypatch, lambda: list(fleet.rehearse()))
    trained = asked(monkeypatch, lambda: Fleet(RUNS, images(), default_model, CPU, fused=True).train_epoch(1, steps=1))
    assert [each for each in trained if each in rehearsed] == rehearsed


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (6, 2), (32, 3)])
def test_processes_share_the_groups(monkeypatch, cores, processes):
    started = []
    monkeypatch.setattr(ahead.os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(ahead, "_start", lambda groups, device: started.append(groups) or Dummy())
    with Ahead([[run] for run in RUNS[:3]], CPU) as compilers:
        assert compilers.done()
    assert len(started) == processes
    assert sorted(run.run_id for groups in started for group in groups for run in group) == sorted(
        run.run_id for run in RUNS[:3]
    )


class Dummy:
    def poll(self):
        return 0

    def kill(self):
        pass

    def wait(self):
        pass


def test_a_process_gets_whole_specs_and_is_ended_at_exit(monkeypatch, tmp_path):
    """In the place of the compiler: what a process reads on its standard input, until it is ended."""
    heard = tmp_path / "heard"
    echo = f"import sys, time; open({str(heard)!r}, 'w').write(sys.stdin.read()); time.sleep(600)"
    real = subprocess.Popen
    monkeypatch.setattr(ahead.subprocess, "Popen", lambda command, **rest: real([sys.executable, "-c", echo], **rest))
    with Ahead([[RUNS[0]]], CPU) as compilers:
        deadline = time.monotonic() + 60
        while not (heard.exists() and heard.read_text().endswith("]]")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not compilers.done()
    assert compilers.done()
    (fields,) = json.loads(heard.read_text())[0]
    assert type(RUNS[0]).model_validate(fields) == RUNS[0]


@pytest.mark.slow
def test_the_process_itself_compiles():
    with Ahead([[RUNS[0]]], CPU) as compilers:
        assert [process.wait(300) for process in compilers._processes] == [0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_a_fleet_compiled_ahead_trains_beside_another(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "FEW_STEPS", 0)
    monkeypatch.setattr(choose, "pays_to_fuse", lambda fleet, seconds, ahead: ahead and fleet.spec.depth == 3)
    monkeypatch.setattr(choose, "step_seconds", timed_as_faster(choose.step_seconds))
    runs = [*RUNS, *(run.model_copy(update={"depth": 2}) for run in RUNS)]
    card, host = (train(runs, tmp_path / where, data=images(), device=where) for where in ("cuda", "cpu"))
    assert {log.spec.depth: log.header.path for log in card} == {3: "graph, fused", 2: "graph"}
    for ours, theirs in zip(card, host, strict=True):
        assert [row.test_loss for row in ours.epochs] == pytest.approx(
            [row.test_loss for row in theirs.epochs], rel=1e-3
        )


def timed_as_faster(step_seconds):
    """A compiled fleet of five tiny runs is hardly faster; whatever the clock says, it shall train."""
    return lambda fleet: step_seconds(fleet) * (1e-6 if fleet.fused else 1.0)
