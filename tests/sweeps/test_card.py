"""Fleets on a card: as many as fit, other models in processes of their own, and the logs of a training alone."""

import pytest
import torch
from cases.fleets import EPOCHS, features, images, spec, untimed, workshop

from creditscope.errors import CreditscopeError
from creditscope.records import RunLog
from creditscope.sweeps import card, choose
from creditscope.sweeps.local import Quiet, train
from creditscope.sweeps.memory import fleet_bytes

VIT = {"model": "vit-mini", "width": 8, "depth": 2, "view": "cls"}
HERE = [spec("bp", images()), spec("dfa", images()), spec("fa", images())]
AWAY = [spec("bp", images(), **VIT), spec("dfa", images(), **VIT)]


@pytest.fixture
def room(monkeypatch):
    """Room for everything, in the place of a card."""
    monkeypatch.setattr(card, "free_bytes", lambda device: 10**12)


def shop(folder, **changes):
    return workshop(folder, **({"load": lambda spec: images()} | changes))


def logs(folder, runs):
    return [RunLog.read(folder / f"{run.run_id}.jsonl") for run in runs]


@pytest.mark.parametrize(("room", "waves"), [(10**12, [3]), (1, [1, 1, 1])])
def test_as_many_fleets_as_its_memory_holds(tmp_path, monkeypatch, room, waves):
    monkeypatch.setattr(card, "free_bytes", lambda device: room)
    fleets = [[spec("bp", width=width)] for width in (4, 5, 6)]
    assert [len(wave) for wave in card._waves(fleets, workshop(tmp_path))] == waves


@pytest.mark.usefixtures("room")
def test_the_largest_fleet_is_built_first(tmp_path, monkeypatch):
    waves = []
    monkeypatch.setattr(card, "_homes", lambda wave, workshop: waves.append([len(m) for m in wave]) or [[]])
    fleets = [[spec("bp", width=4)], [spec("bp", seed=s, width=5) for s in range(3)], [spec("bp"), spec("fa")]]
    card.train_on_card(fleets, workshop(tmp_path), keeps=())
    sizes = {len(members): fleet_bytes(members) for members in fleets}
    assert waves == [sorted(sizes, key=sizes.get, reverse=True)]


def test_a_fleet_larger_than_the_card_is_cut(tmp_path, monkeypatch):
    members = [spec(method, seed=seed) for method in ("bp", "dfa") for seed in (1, 2)]
    monkeypatch.setattr(card, "free_bytes", lambda device: 10**12)
    assert [list(part) for part in card._fitting(members, workshop(tmp_path))] == [members]
    half = max(fleet_bytes(members[:2]), fleet_bytes(members[2:]))
    monkeypatch.setattr(card, "free_bytes", lambda device: half)
    parts = card._fitting(members, workshop(tmp_path))
    assert [run for part in parts for run in part] == members
    assert len(parts) == 2


def test_the_model_of_the_most_runs_stays_here(tmp_path):
    wide = [spec("bp", images(), width=4)]
    assert card._homes([AWAY, HERE, wide], shop(tmp_path)) == [[HERE, wide], [AWAY]]
    of_a_user = shop(tmp_path, factory=lambda spec, data: None)
    assert card._homes([AWAY, HERE], of_a_user) == [[AWAY, HERE]], "a user's own model cannot travel"


@pytest.mark.usefixtures("room")
def test_what_is_trained_elsewhere_is_trained_as_here(tmp_path):
    heard, steps = [], []

    class Progress(Quiet):
        def step(self, members):
            steps.append(members[0].model)

    for name in ("together", "here"):
        (tmp_path / name).mkdir()

    def on_row(header, row):
        heard.append((header.spec.model, row.kind, row.epoch))
        if header.spec.method == "dfa" and row.kind == "epoch" and row.epoch == 2:
            return "enough"
        return None

    card.train_on_card([HERE, AWAY], shop(tmp_path / "together", on_row=on_row, progress=Progress()), keeps=())
    shop(tmp_path / "here").train([AWAY, HERE])
    pairs = zip(*(logs(tmp_path / name, [*HERE, *AWAY]) for name in ("together", "here")), strict=True)
    for one, other in pairs:
        assert untimed(one) == untimed(other)[: len(one.epochs)]
        stopped = one.spec.method == "dfa"
        assert (one.end.status, one.end.epoch) == (("stopped", 2) if stopped else ("finished", EPOCHS))
    assert {steps.count(model) for model in ("resmlp", "vit-mini")} == {5 * EPOCHS}
    assert heard.count(("vit-mini", "epoch", 1)) == len(AWAY)


def gone_on_with(folder):
    """Both fleets come to their ends; one that had ended is left alone, as a plan leaves it."""
    done = [all(log.finished for log in logs(folder, fleet)) for fleet in (HERE, AWAY)]
    assert not done[1]
    card.train_on_card([AWAY] if done[0] else [HERE, AWAY], shop(folder, resume=True), keeps=())
    assert all(log.finished and len(log.epochs) == EPOCHS + 1 for log in logs(folder, [*HERE, *AWAY]))


@pytest.mark.usefixtures("room")
def test_an_error_here_saves_what_is_elsewhere(tmp_path):
    def on_row(header, row):
        if header.spec.model == "vit-mini" and row.kind == "epoch" and row.epoch == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        card.train_on_card([HERE, AWAY], shop(tmp_path, on_row=on_row), keeps=())
    gone_on_with(tmp_path)


@pytest.mark.usefixtures("room")
def test_an_error_elsewhere_is_raised_here_and_saves_what_is_here(tmp_path, started):
    def on_row(header, row):
        if header.spec.model == "vit-mini" and row.kind == "epoch" and row.epoch == 1:
            started[0].kill()

    with pytest.raises(CreditscopeError, match="a training process ended by signal 9"):
        card.train_on_card([HERE, AWAY], shop(tmp_path, on_row=on_row), keeps=())
    gone_on_with(tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_two_models_train_in_two_processes(tmp_path):
    runs = [run.model_copy(update={"dtype": "float32"}) for run in (*HERE, *AWAY)]
    on_card, on_host = (train(runs, tmp_path / where, data=images(), device=where) for where in ("cuda", "cpu"))
    assert {log.header.path for log in on_card} == {"graph"}
    have_the_losses_of(on_card, on_host)


def have_the_losses_of(logs, others):
    for ours, theirs in zip(logs, others, strict=True):
        assert [row.test_loss for row in ours.epochs] == pytest.approx(
            [row.test_loss for row in theirs.epochs], rel=1e-3
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_a_compiled_fleet_trains_beside_another(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "FEW_STEPS", 0)
    monkeypatch.setattr(choose, "pays_to_fuse", lambda fleet, seconds: fleet.spec.depth == 3)
    three = [spec(method, features(), dtype="float32") for method in ("bp", "fa", "dfa-rms@frozen")]
    runs = [*three, *(run.model_copy(update={"depth": 2}) for run in three)]
    on_card, on_host = (train(runs, tmp_path / where, data=features(), device=where) for where in ("cuda", "cpu"))
    assert {log.spec.depth: log.header.path for log in on_card} == {3: "graph, fused", 2: "graph"}
    have_the_losses_of(on_card, on_host)
