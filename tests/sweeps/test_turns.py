"""Fleets that take turns train as they would alone."""

import pytest
import torch
from cases import fleets
from cases.fleets import features, spec

from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.records import ProbeSpec, RunLog
from creditscope.sweeps import choose, turns
from creditscope.sweeps.choose import best_fleet
from creditscope.sweeps.local import Quiet
from creditscope.sweeps.memory import fleet_bytes
from creditscope.sweeps.turns import Workshop

METHODS = ("bp", "fa", "dfa", "dfa-rms")


def workshop(folder, heard=None, **changes):
    fields = {
        "folder": folder,
        "load": lambda spec: features(),
        "factory": default_model,
        "device": torch.device("cpu"),
        "on_row": lambda header, row: None if heard is None else heard.append((header.spec.width, row.kind, row.epoch)),
        "progress": Quiet(),
        "note": print,
        "resume": False,
    }
    return Workshop(**(fields | changes))


def test_turns_go_round_and_change_nothing(tmp_path):
    wave = [[spec("bp"), spec("dfa")], [spec("bp", width=4)], [spec("bp", width=5, epochs=2)]]
    heard = []
    (tmp_path / "turns").mkdir(), (tmp_path / "alone").mkdir()
    workshop(tmp_path / "turns", heard)._take_turns(wave)
    reached = dict.fromkeys((4, 5, 6), 0)
    for width, kind, epoch in heard:
        if kind == "epoch":
            reached[width] = epoch
            assert epoch - min(reached[other] for other in (4, 6)) <= 2, "nobody runs away from the others"
    workshop(tmp_path / "alone").train(wave)
    for run in (run for members in wave for run in members):
        one, other = (RunLog.read(tmp_path / kind / f"{run.run_id}.jsonl") for kind in ("turns", "alone"))
        clock = {"time_epoch": None}
        assert [row.model_copy(update=clock) for row in one.epochs] == [
            row.model_copy(update=clock) for row in other.epochs
        ]
        assert one.finished


@pytest.mark.usefixtures("ahead")
def test_turns_of_fleets_that_are_ahead_change_nothing_either(tmp_path):
    """As on a card; the oracle is one run trained by hand."""
    wave = [[spec("bp"), spec("dfa")], [spec("bp", width=4)]]
    workshop(tmp_path)._take_turns(wave)
    for run in wave[0]:
        feedback = fleets.fleet([run]).feedback_of(0)
        _, losses = fleets.alone(run, features(), feedback)
        log = RunLog.read(tmp_path / f"{run.run_id}.jsonl")
        assert [row.train_loss for row in log.epochs][1:] == pytest.approx(losses, rel=1e-9)
        assert log.finished


def test_others_have_a_turn_between_two_dear_probes(tmp_path):
    heard = []
    probing = [spec(method, probe=ProbeSpec(n=16, batch=6, dear=(1,), redraws=3, directions=2)) for method in METHODS]
    other = [spec("bp", width=4, probe=ProbeSpec(n=16, batch=6, dear=(), redraws=3, directions=2))]
    workshop(tmp_path, heard)._take_turns([probing, other])
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
        workshop(tmp_path, on_row=on_row)._take_turns(wave)
    workshop(tmp_path, resume=True)._take_turns(wave)
    assert all(RunLog.read(tmp_path / f"{members[0].run_id}.jsonl").finished for members in wave)


@pytest.mark.parametrize(("room", "waves"), [(10**12, [3]), (1, [1, 1, 1])])
def test_a_card_takes_as_many_fleets_as_its_memory_holds(tmp_path, monkeypatch, room, waves):
    monkeypatch.setattr(turns, "free_bytes", lambda device: room)
    fleets = [[spec("bp", width=width)] for width in (4, 5, 6)]
    card = workshop(tmp_path, device=torch.device("cuda"))
    assert [len(wave) for wave in card._waves(fleets)] == waves
    assert [len(wave) for wave in workshop(tmp_path)._waves(fleets)] == [1, 1, 1], "on a CPU one at a time"


def test_on_a_card_the_largest_fleet_is_built_first(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "free_bytes", lambda device: 10**12)
    waves = []
    monkeypatch.setattr(Workshop, "_take_turns", lambda self, wave: waves.append([len(m) for m in wave]))
    fleets_of = [[spec("bp", width=4)], [spec("bp", seed=s, width=5) for s in range(3)], [spec("bp"), spec("fa")]]
    for device in ("cuda", "cpu"):
        workshop(tmp_path, device=torch.device(device)).train(fleets_of)
    sizes = {len(members): fleet_bytes(members) for members in fleets_of}
    assert waves[0] == sorted(sizes, key=sizes.get, reverse=True)
    assert waves[1:] == [[1], [3], [2]]


def test_a_fleet_larger_than_the_card_is_cut(tmp_path, monkeypatch):
    members = [spec(method, seed=seed) for method in ("bp", "dfa") for seed in (1, 2)]
    card = workshop(tmp_path, device=torch.device("cuda"))
    monkeypatch.setattr(turns, "free_bytes", lambda device: 10**12)
    assert [list(part) for part in card._fitting(members)] == [members]
    half = max(fleet_bytes(members[:2]), fleet_bytes(members[2:]))
    monkeypatch.setattr(turns, "free_bytes", lambda device: half)
    parts = card._fitting(members)
    assert [run for part in parts for run in part] == members
    assert len(parts) == 2
    assert workshop(tmp_path)._fitting(members) == [members], "a CPU's memory is the sweep's affair"


def test_dealt_parts_are_alike_and_a_begun_fleet_stays_whole(tmp_path):
    shop = workshop(tmp_path)
    members = [spec(method, seed=seed) for method in ("bp", "dfa") for seed in (1, 2, 3)]
    parts = shop.deal(members, 2)
    assert [len(part) for part in parts] == [3, 3]
    assert sorted(run.run_id for part in parts for run in part) == sorted(run.run_id for run in members)
    shop.train([members])
    assert shop.deal(members, 2) == [members]


def test_a_compiled_fleet_is_gone_on_with_compiled(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(Workshop, "build", lambda self, members, fused=False: built.append(fused) or plain(members))

    def plain(members):
        fleet = Fleet(members, features(), default_model, torch.device("cpu"))
        fleet.fused = built[-1]
        return fleet

    members = [spec("bp")]
    shop = workshop(tmp_path, on_row=stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        shop.train([members])
    path = tmp_path / f"{members[0].run_id}.jsonl"
    path.write_text(path.read_text().replace('"stacked"', '"stacked, fused"'))
    workshop(tmp_path, resume=True).train([members])
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


class Compilers:
    """Compilers that are done after a few questions."""

    def __init__(self, groups, log, questions=3):
        self.log, self.questions = log, questions
        log.append([[run.run_id for run in group] for group in groups])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.log.append("ended")

    def done(self):
        self.questions -= 1
        return self.questions < 0


def test_others_train_while_a_fleet_is_compiled_ahead(tmp_path, monkeypatch):
    small, large = [spec("bp", width=4)], [spec("bp"), spec("dfa"), spec("dfa@frozen")]
    log = []

    def choosing(build, say, ahead=None):
        return best_fleet(build, say, lambda groups: Compilers(groups, log))

    monkeypatch.setattr(turns, "best_fleet", choosing)
    monkeypatch.setattr(choose, "FEW_STEPS", 0)
    monkeypatch.setattr(choose, "pays_to_fuse", lambda fleet, seconds, ahead: ahead and len(fleet.specs) == 3)
    monkeypatch.setattr(choose, "step_seconds", lambda fleet: 1.0 if fleet.fused else 2.0)
    monkeypatch.setattr(Fleet, "train_epoch", told_fused(Fleet.train_epoch, log))
    monkeypatch.setattr(Workshop, "build", untraced)
    workshop(tmp_path)._take_turns([large, small])
    groups = next(at for at, told in enumerate(log) if isinstance(told, list))
    assert log[groups] == [[large[0].run_id], [large[1].run_id], [large[2].run_id]]
    ended = log.index("ended")
    assert set(log[groups + 1 : ended]) == {False}, "the small one trained meanwhile"
    assert log.count(True) == fleets.EPOCHS, "the large one was compiled"
    logs = [RunLog.read(tmp_path / f"{run.run_id}.jsonl") for run in (*large, *small)]
    assert all(log.finished for log in logs)
    assert [log.header.path for log in logs] == [*(["stacked, fused"] * 3), "stacked"]


def untraced(self, members, fused=False):
    """The compiler itself is not asked."""
    fleet = Fleet(members, features(), default_model, torch.device("cpu"))
    fleet.fused = fused
    return fleet


def told_fused(train, log):
    def told(fleet, *rest):
        log.append(fleet.fused)
        return train(fleet, *rest)

    return told


def test_compilers_are_ended_when_training_is_stopped(tmp_path, monkeypatch):
    log = []
    monkeypatch.setattr(choose, "FEW_STEPS", 0)
    monkeypatch.setattr(choose, "pays_to_fuse", lambda fleet, seconds, ahead: ahead and fleet.spec.width == 6)
    monkeypatch.setattr(
        turns,
        "best_fleet",
        lambda build, say, ahead=None: best_fleet(build, say, lambda groups: Compilers(groups, log, 10**6)),
    )
    with pytest.raises(KeyboardInterrupt):
        workshop(tmp_path, on_row=stop_after_one)._take_turns([[spec("bp")], [spec("bp", width=4)]])
    assert log[-1] == "ended"
