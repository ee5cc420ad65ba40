"""Fleets that take turns train as they would alone; on a GPU as many as fit."""

import pytest
import torch
from cases import fleets
from cases.fleets import context, features, jobs, spec, train_fleets

from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.execution import calibrate, in_process
from creditscope.execution.context import TrainContext
from creditscope.execution.in_process import InProcess
from creditscope.execution.local import train
from creditscope.records import ProbeSpec, RunLog

METHODS = ("bp", "fa", "dfa", "dfa-rms")


def untimed(log):
    """A log's epochs without their clock, in which two trainings of one run differ."""
    return [row.model_copy(update={"time_epoch": None}) for row in log.epochs]


def in_turns(where, wave):
    """Fleets side by side, as on a GPU."""
    with InProcess(where) as executor:
        for job in jobs(wave):
            executor.submit(job)
        for _ in wave:
            assert executor.next_end().outcome.error is None


def test_turns_go_round_and_change_nothing(tmp_path):
    wave = [[spec("bp"), spec("dfa")], [spec("bp", width=4)], [spec("bp", width=5, epochs=2)]]
    heard = []
    (tmp_path / "turns").mkdir(), (tmp_path / "alone").mkdir()
    in_turns(context(tmp_path / "turns", heard), wave)
    reached = dict.fromkeys((4, 5, 6), 0)
    for width, kind, epoch in heard:
        if kind == "epoch":
            reached[width] = epoch
            assert epoch - min(reached[other] for other in (4, 6)) <= 2, "nobody runs away from the others"
    train_fleets(context(tmp_path / "alone"), wave)
    for run in (run for members in wave for run in members):
        one, other = (RunLog.read(tmp_path / kind / f"{run.run_id}.jsonl") for kind in ("turns", "alone"))
        assert untimed(one) == untimed(other)
        assert one.finished


@pytest.mark.usefixtures("ahead")
def test_turns_of_fleets_that_are_ahead_change_nothing_either(tmp_path):
    """As on a GPU; the oracle is one run trained by hand."""
    wave = [[spec("bp"), spec("dfa")], [spec("bp", width=4)]]
    in_turns(context(tmp_path), wave)
    for run in wave[0]:
        feedback = fleets.fleet([run]).state_of(0)
        _, losses = fleets.alone(run, features(), feedback)
        log = RunLog.read(tmp_path / f"{run.run_id}.jsonl")
        assert [row.train_loss for row in log.epochs][1:] == pytest.approx(losses, rel=1e-9)
        assert log.finished


def test_others_have_a_turn_between_two_expensive_probes(tmp_path):
    heard = []
    probing = [spec(method, probe=ProbeSpec(n=16, batch=6, epochs=(1,), redraws=3, directions=2)) for method in METHODS]
    other = [spec("bp", width=4, probe=ProbeSpec(n=16, batch=6, epochs=(), redraws=3, directions=2))]
    in_turns(context(tmp_path, heard), [probing, other])
    expensive = [at for at, (width, kind, epoch) in enumerate(heard) if (width, kind, epoch) == (6, "probe", 1)]
    assert len(expensive) == len(METHODS)
    between = [kind for width, kind, _ in heard[expensive[0] : expensive[-1]] if width == 4]
    assert between.count("epoch") >= 2


def test_an_error_in_one_fleet_saves_the_others(tmp_path):
    wave = [[spec("bp")], [spec("bp", width=4)]]

    def on_row(header, row):
        if header.spec.width == 4 and row.kind == "epoch" and row.epoch == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_turns(context(tmp_path, on_row=on_row), wave)
    in_turns(context(tmp_path, resume=True), wave)
    assert all(RunLog.read(tmp_path / f"{members[0].run_id}.jsonl").finished for members in wave)


def test_a_compiled_fleet_is_gone_on_with_compiled(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(TrainContext, "build", lambda self, members, fused=False: built.append(fused) or plain(members))

    def plain(members):
        fleet = Fleet(members, features(), default_model, torch.device("cpu"))
        fleet.fused = built[-1]
        return fleet

    members = [spec("bp")]
    with pytest.raises(KeyboardInterrupt):
        train_fleets(context(tmp_path, on_row=stop_after_one), [members])
    path = tmp_path / f"{members[0].run_id}.jsonl"
    path.write_text(path.read_text().replace('"stacked"', '"stacked, fused"'))
    train_fleets(context(tmp_path, resume=True), [members])
    assert built == [False, True]
    assert RunLog.read(path).finished


def stop_after_one(header, row):
    if row.kind == "epoch" and row.epoch == 2:
        raise KeyboardInterrupt


def test_whoever_is_done_first_goes_on_first(monkeypatch):
    def told(*answers):
        return iter(answers).__next__

    slept = []
    monkeypatch.setattr(in_process.time, "sleep", slept.append)
    assert in_process._next_turn([told(False), told(True)]) == 1
    assert not slept
    assert in_process._next_turn([told(False, False), told(False, True)]) == 1
    assert len(slept) == 1
    assert in_process._next_turn([told(True), told(True)]) == 0


@pytest.mark.parametrize(("room", "waves"), [(10**12, [3]), (1, [1, 1, 1])])
def test_as_many_fleets_as_the_memory_of_a_gpu_holds(tmp_path, monkeypatch, room, waves):
    def one_turn(*job):
        yield in_process.at_once

    monkeypatch.setattr(in_process, "free_bytes", lambda device: room)
    monkeypatch.setattr(in_process, "fleet_turns", one_turn)
    waiting, found = jobs([[spec("bp", width=width)] for width in (4, 5, 6)]), []
    with InProcess(context(tmp_path, device=torch.device("cuda"))) as executor:
        while waiting:
            found.append(0)
            while waiting and executor.takes(waiting[0]):
                executor.submit(waiting.pop(0))
                found[-1] += 1
            for left in reversed(range(found[-1])):
                executor.next_end()
                assert not waiting or executor.takes(waiting[0]) == (left == 0), "a wave is over when all have ended"
    assert found == waves


def test_on_a_cpu_one_after_the_other(tmp_path):
    first, second = jobs([[spec("bp")], [spec("bp", width=4)]])
    with InProcess(context(tmp_path)) as executor:
        assert executor.takes(first)
        executor.submit(first)
        assert not executor.takes(second)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_a_compiled_fleet_trains_beside_another(tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "FEW_STEPS", 0)
    monkeypatch.setattr(calibrate, "pays_to_fuse", lambda fleet, seconds: fleet.spec.depth == 3)
    three = [spec(method, features(), dtype="float32") for method in ("bp", "fa", "dfa-rms@frozen")]
    runs = [*three, *(run.model_copy(update={"depth": 2}) for run in three)]
    on_card, on_host = (train(runs, tmp_path / where, data=features(), device=where) for where in ("cuda", "cpu"))
    assert {log.spec.depth: log.header.path for log in on_card} == {3: "graph, fused", 2: "graph"}
    for ours, theirs in zip(on_card, on_host, strict=True):
        losses = [row.test_loss for row in theirs.epochs]
        assert [row.test_loss for row in ours.epochs] == pytest.approx(losses, rel=1e-3)
