"""Fleets that take turns train as they would alone."""

import pytest
import torch
from cases import fleets
from cases.fleets import context, features, spec

from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.execution import turns
from creditscope.execution.turns import TrainContext
from creditscope.records import ProbeSpec, RunLog

METHODS = ("bp", "fa", "dfa", "dfa-rms")


def untimed(log):
    """A log's epochs without their clock, in which two trainings of one run differ."""
    return [row.model_copy(update={"time_epoch": None}) for row in log.epochs]


def turns_of(shop, wave):
    turns.take_turns([shop.turns_of(members) for members in wave])


def test_turns_go_round_and_change_nothing(tmp_path):
    wave = [[spec("bp"), spec("dfa")], [spec("bp", width=4)], [spec("bp", width=5, epochs=2)]]
    heard = []
    (tmp_path / "turns").mkdir(), (tmp_path / "alone").mkdir()
    turns_of(context(tmp_path / "turns", heard), wave)
    reached = dict.fromkeys((4, 5, 6), 0)
    for width, kind, epoch in heard:
        if kind == "epoch":
            reached[width] = epoch
            assert epoch - min(reached[other] for other in (4, 6)) <= 2, "nobody runs away from the others"
    context(tmp_path / "alone").train(wave)
    for run in (run for members in wave for run in members):
        one, other = (RunLog.read(tmp_path / kind / f"{run.run_id}.jsonl") for kind in ("turns", "alone"))
        assert untimed(one) == untimed(other)
        assert one.finished


@pytest.mark.usefixtures("ahead")
def test_turns_of_fleets_that_are_ahead_change_nothing_either(tmp_path):
    """As on a GPU; the oracle is one run trained by hand."""
    wave = [[spec("bp"), spec("dfa")], [spec("bp", width=4)]]
    turns_of(context(tmp_path), wave)
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
    turns_of(context(tmp_path, heard), [probing, other])
    dear = [at for at, (width, kind, epoch) in enumerate(heard) if (width, kind, epoch) == (6, "probe", 1)]
    assert len(dear) == len(METHODS)
    between = [kind for width, kind, _ in heard[dear[0] : dear[-1]] if width == 4]
    assert between.count("epoch") >= 2


def test_an_error_in_one_fleet_saves_the_others(tmp_path):
    wave = [[spec("bp")], [spec("bp", width=4)]]

    def on_row(header, row):
        if header.spec.width == 4 and row.kind == "epoch" and row.epoch == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turns_of(context(tmp_path, on_row=on_row), wave)
    turns_of(context(tmp_path, resume=True), wave)
    assert all(RunLog.read(tmp_path / f"{members[0].run_id}.jsonl").finished for members in wave)


def test_dealt_parts_are_alike_and_a_begun_fleet_stays_whole(tmp_path):
    shop = context(tmp_path)
    members = [spec(method, seed=seed) for method in ("bp", "dfa") for seed in (1, 2, 3)]
    parts = shop.deal(members, 2)
    assert [len(part) for part in parts] == [3, 3]
    assert sorted(run.run_id for part in parts for run in part) == sorted(run.run_id for run in members)
    shop.train([members])
    assert shop.deal(members, 2) == [members]


def test_a_compiled_fleet_is_gone_on_with_compiled(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(TrainContext, "build", lambda self, members, fused=False: built.append(fused) or plain(members))

    def plain(members):
        fleet = Fleet(members, features(), default_model, torch.device("cpu"))
        fleet.fused = built[-1]
        return fleet

    members = [spec("bp")]
    shop = context(tmp_path, on_row=stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        shop.train([members])
    path = tmp_path / f"{members[0].run_id}.jsonl"
    path.write_text(path.read_text().replace('"stacked"', '"stacked, fused"'))
    context(tmp_path, resume=True).train([members])
    assert built == [False, True]
    assert RunLog.read(path).finished


def stop_after_one(header, row):
    if row.kind == "epoch" and row.epoch == 2:
        raise KeyboardInterrupt


def test_whoever_is_done_first_goes_on_first(monkeypatch):
    def told(*answers):
        return iter(answers).__next__

    slept = []
    monkeypatch.setattr(turns.time, "sleep", slept.append)
    assert turns._next_turn([told(False), told(True)]) == 1
    assert not slept
    assert turns._next_turn([told(False, False), told(False, True)]) == 1
    assert len(slept) == 1
    assert turns._next_turn([told(True), told(True)]) == 0
