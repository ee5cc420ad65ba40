"""The loop: what stands in a log, when the expensive set is measured, and that one run's end is not another's."""

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from cases import fleets
from cases.fleets import features, spec

from creditscope.engine import checkpoint as checkpoint_module
from creditscope.engine import loop as loop_module
from creditscope.engine.checkpoint import FleetState, read_checkpoint
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import FleetLoop
from creditscope.engine.step import schedule_factor
from creditscope.errors import BadFile, CannotWrite
from creditscope.execution.context import Quiet
from creditscope.probes.functional.movement import movements
from creditscope.records import DataSpec, OptimiserSpec, ProbeSpec, RunLog
from creditscope.rules.build import given_rules
from creditscope.rules.direct_feedback import DirectFeedback


def loop(folder, specs, on_row=lambda header, row: None, resume=False):
    """Train and read the logs back, in the order of the specs asked for."""
    FleetLoop(fleets.fleet(specs), folder, on_row, Quiet()).run(resume)
    return [RunLog.read(folder / f"{one.run_id}.jsonl") for one in specs]


def lines(path):
    """Rows of a log without the clock."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.startswith("time_")} for row in rows]


METHODS = ("bp", "bp+pen0.1", "fa", "fa-block", "dfa-rms", "dfa-rms@frozen", "dfa-rms@last2")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    runs = [spec(method, probe=ProbeSpec(n=16, batch=6, epochs=(0, 2), redraws=19, directions=4)) for method in METHODS]
    folder = tmp_path_factory.mktemp("runs")
    return dict(zip(METHODS, loop(folder, runs), strict=True))


def test_labels_are_logged_only_where_classes_differ_in_size(tmp_path, monkeypatch):
    monkeypatch.setattr(DataSpec, "unequal", False)
    (log,) = loop(tmp_path, [spec("bp", epochs=1)])
    assert log.end.labels is None


def test_the_header_says_what_a_resume_and_a_reader_need(logs):
    fleet = fleets.fleet([spec(m) for m in METHODS])
    headers = {method: log.header for method, log in logs.items()}
    company = headers["bp"].fleet
    assert sorted(company) == sorted(log.spec.run_id for log in logs.values())
    for method, header in headers.items():
        assert header.fleet == company
        assert (header.path, header.threads) == ("stacked", torch.get_num_threads())
        assert header.blocks == ["blocks.0", "blocks.1", "blocks.2"]
        assert (header.partition, header.provenance["off_in_probes"]) == ("model", "nothing")
        assert header.parameters == sum(p[0].numel() for p in fleet.params.values())
        assert header.provenance["device"] == "cpu"
        assert header.spec.injection
        assert header.exact == {"bp": [True] * 4, "fa-block": [False] * 3 + [True]}.get(header.spec.rule, [False] * 4)
        assert (header.spec.feedback.hash is None) == (header.spec.rule == "bp"), method


def test_the_feedback_hash_is_of_the_matrices(logs):
    run = spec("dfa-rms")
    feedback = fleets.fleet([run]).state_of(0)
    digest = hashlib.sha256()
    for name in sorted(feedback):
        digest.update(name.encode() + feedback[name].numpy().astype("<f8").tobytes())
    assert logs["dfa-rms"].spec.feedback.hash == digest.hexdigest()
    assert logs["dfa-rms"].spec.feedback.seed == 1
    assert logs["dfa-rms@frozen"].spec.feedback.hash == digest.hexdigest()


def test_expensive_rows_on_schedule_and_at_the_last_epoch_only_for_a_baseline(logs):
    probed_at = {method: [row.epoch for row in log.probes] for method, log in logs.items()}
    assert probed_at == {method: [4] if method.endswith("@frozen") else [0, 2, 4] for method in METHODS}


def test_null_draws_are_kept_at_the_end_only(logs):
    kept = [row.null.draws is not None for row in logs["dfa-rms"].probes]
    assert kept == [False, False, True]


def test_every_epoch_has_a_row_and_the_end_is_said(logs):
    for log in logs.values():
        assert [row.epoch for row in log.epochs] == [0, 1, 2, 3, 4]
        assert [row.step for row in log.epochs] == [0, 5, 10, 15, 20]
        assert (log.end.status, log.end.epoch, log.end.reason) == ("finished", 4, None)
        assert log.finished


def test_rates_and_losses_are_those_of_a_plain_loop(logs):
    for method in ("bp", "dfa-rms", "fa"):
        log = logs[method]
        fleet = fleets.fleet([spec(method)])
        _, losses = fleets.alone(spec(method), features(), fleet.state_of(0))
        assert [row.train_loss for row in log.epochs][1:] == pytest.approx(losses, rel=1e-9)
        rates = [0.01 * schedule_factor("cosine", epoch, 4) for epoch in (1, 2, 3, 4)]
        assert [row.lr for row in log.epochs][1:] == pytest.approx(rates)
        assert log.epochs[0].lr is None
        assert log.epochs[0].train_loss is None


def test_scores_movement_and_correct_bits_are_those_of_the_last_weights(logs):
    run, data = spec("dfa-rms@last2"), features()
    made, _ = fleets.trained([run])
    log = logs["dfa-rms@last2"]
    model = made.task.blocks.model
    logits = torch.func.functional_call(model, {n: p[0] for n, p in made.params.items()}, data.x_test.double())
    correct = (logits.argmax(1) == data.y_test).numpy()
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(log.end.correct), dtype=np.uint8))[: log.end.n_test]
    assert bits.astype(bool).tolist() == correct.tolist()
    assert log.end.test_accuracy == log.last.test_accuracy == pytest.approx(correct.mean())
    y = data.y_test.numpy()
    assert log.last.balanced_accuracy == pytest.approx(np.mean([correct[y == c].mean() for c in np.unique(y)]))
    # 40 images of 3 classes: they differ in size, so that the judge needs to know which is which.
    assert log.end.labels == "".join(f"{label:04x}" for label in y.tolist())
    assert log.last.test_loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, data.y_test)))
    moved = log.last.movement
    assert moved.trainable == [False, True, True]
    assert moved.blocks[1] == ["blocks.1.branch.1.weight", "blocks.1.branch.3.weight"]
    for name, value in moved.weights.items():
        assert value == pytest.approx(float(movements(made.params[name], made.init[name])[0]), abs=1e-9)
    assert moved.weights["blocks.0.branch.1.weight"] == 0
    assert moved.weights["blocks.1.branch.1.weight"] > 1e-4


def test_random_targets_stand_in_the_log(tmp_path):
    log = loop(tmp_path, [spec("bp", targets="random")])[0]
    assert log.spec.targets == "random"
    _, losses = fleets.alone(log.spec, features(), {})
    assert log.last.train_loss == pytest.approx(losses[-1], rel=1e-9)


# Divergence and stops

FEW = ProbeSpec(n=8, batch=6, epochs=(1,), redraws=3, directions=2)
WILD = spec("bp", seed=9, lr=1e35, dtype="float32", probe=FEW)
CALM = [spec(method, dtype="float32", probe=FEW) for method in ("bp", "dfa-rms")]


def test_a_run_that_diverges_is_marked_and_the_others_go_on(tmp_path):
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    wild, *calm = loop(tmp_path / "with", [WILD, *CALM])
    assert wild.end.status == "diverged"
    assert wild.end.epoch == wild.last.epoch == 1
    assert wild.end.reason == "the training loss became non-finite"
    assert wild.last.train_loss is None
    assert wild.last.nonfinite["train_loss"] == "nan"
    assert wild.last.hidden.median == [None] * 4
    assert wild.last.nonfinite["hidden.median[3]"] == "nan"
    assert wild.last.cosine.status == ["not measured"] * 4
    assert wild.probes == (), "there is nothing left to probe"
    for beside, alone in zip(calm, loop(tmp_path / "without", CALM), strict=True):
        assert beside.finished
        for here, there in zip(beside.epochs[1:], alone.epochs[1:], strict=True):
            assert here.train_loss == pytest.approx(there.train_loss, rel=1e-4)
            assert here.hidden.median == pytest.approx(there.hidden.median, rel=1e-4)
            assert here.test_accuracy == there.test_accuracy


def test_a_fleet_of_diverged_runs_ends_at_once(tmp_path):
    log = loop(tmp_path, [WILD])[0]
    assert len(log.epochs) == 2


@dataclass(frozen=True)
class Overflowing(DirectFeedback):
    """dfa with an entry of its own that nothing reads and that grows without bound."""

    growth: float = 1.0

    name = "overflowing"
    learns = True

    def init(self, task, params, generator):
        return super().init(task, params, generator) | {"spare": next(iter(params.values())).new_ones(2, 2)}

    def assign(self, task, params, state, seen):
        return super().assign(task, params, state, seen)._replace(state={"spare": state["spare"] * self.growth})


def test_a_learned_state_that_is_no_longer_finite_ends_the_run_by_name(tmp_path):
    given = given_rules([Overflowing])
    runs = [spec(f"overflowing(growth={growth})", probe=FEW) for growth in (1e200, 2.0)]
    made = Fleet(runs, features(), fleets.default_model, fleets.CPU, rules=given)
    FleetLoop(made, tmp_path, lambda header, row: None, Quiet()).run(resume=False)
    ends = {run.options["growth"]: RunLog.read(tmp_path / f"{run.run_id}.jsonl") for run in runs}
    broken, fine = ends[1e200], ends[2.0]
    assert (broken.end.status, broken.end.epoch) == ("diverged", 1)
    assert broken.end.reason == "the learned spare became non-finite"
    assert broken.last.nonfinite["movement.feedback.spare"] == "nan"
    assert fine.finished


def test_of_a_state_that_partly_learns_the_rest_has_no_movement():
    made, _ = fleets.trained([spec("credit-bridge"), spec("kp")])
    rows = made.movements(made.observe())
    by_rule = {one.rule: row.feedback for one, row in zip(made.specs, rows, strict=True)}
    assert set(by_rule["credit-bridge"]) == {"V.in", "V.level", "V.out"}, "not dfa's matrices"
    assert all(value > 1e-4 for value in by_rule["credit-bridge"].values())
    assert set(by_rule["kp"]) == set(made.state_of(next(r for r, one in enumerate(made.specs) if one.rule == "kp")))


def stop_at(run_id, epoch):
    def on_row(header, row):
        asked = header.spec.run_id == run_id and row.kind == "epoch" and row.epoch == epoch
        return "lost: growth" if asked else None

    return on_row


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_listener_can_stop_a_run(tmp_path, epoch):
    stopped, other = loop(tmp_path, CALM, stop_at(CALM[0].run_id, epoch))
    assert (stopped.end.status, stopped.end.epoch, stopped.end.reason) == ("stopped", epoch, "lost: growth")
    assert stopped.last.epoch == epoch
    assert other.finished


def test_at_the_last_epoch_there_is_nothing_left_to_stop(tmp_path):
    assert loop(tmp_path, CALM[:1], stop_at(CALM[0].run_id, 4))[0].finished


def test_every_row_is_heard_after_it_is_written(tmp_path):
    heard = []

    def on_row(header, row):
        heard.append(row.kind)
        written = (tmp_path / f"{header.spec.run_id}.jsonl").read_text().splitlines()
        assert json.loads(written[-1])["kind"] == row.kind

    log = loop(tmp_path, [CALM[0]], on_row)[0]
    assert heard == ["epoch", "epoch", "probe", "epoch", "epoch", "epoch", "probe", "end"]
    assert len(list(log.rows())) == len(heard) + 1


# Resume

RUNS = [spec(method, dtype="float32", probe=FEW) for method in ("bp", "fa", "dfa-rms", "dfa-rms@frozen")]


class Interrupted(Quiet):
    """Ctrl-C in the middle of an epoch."""

    def __init__(self, steps):
        self.left = steps

    def step(self, fleet):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def interrupt(folder, steps, specs=RUNS, on_row=lambda header, row: None):
    with pytest.raises(KeyboardInterrupt):
        FleetLoop(fleets.fleet(specs), folder, on_row, Interrupted(steps)).run(resume=False)


def all_lines(folder, specs=RUNS):
    return [lines(folder / f"{one.run_id}.jsonl") for one in specs]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    loop(folder, RUNS)
    return all_lines(folder)


@pytest.mark.parametrize("steps", [2, 7, 18])
def test_interrupted_in_mid_epoch_and_resumed_gives_the_same_log(tmp_path, whole, steps):
    interrupt(tmp_path, steps)
    assert len(list(tmp_path.glob("*.safetensors"))) == len(RUNS)
    assert RunLog.read(tmp_path / f"{RUNS[0].run_id}.jsonl").end is None
    loop(tmp_path, RUNS, resume=True)
    assert all_lines(tmp_path) == whole


@pytest.mark.parametrize("steps", [2, 7, 12, 18])
@pytest.mark.usefixtures("ahead")
def test_interrupted_while_the_next_epoch_is_under_way_and_resumed_gives_the_same_log(tmp_path, whole, steps):
    interrupt(tmp_path, steps)
    loop(tmp_path, RUNS, resume=True)
    assert all_lines(tmp_path) == whole


@pytest.mark.parametrize("rows", [1, 5, 6, 14])
@pytest.mark.usefixtures("ahead")
def test_interrupted_while_an_epoch_is_written_down_and_resumed_gives_the_same_log(tmp_path, whole, rows):
    heard = []

    def on_row(header, row):
        heard.append(row)
        if len(heard) == rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path, RUNS, on_row)
    loop(tmp_path, RUNS, resume=True)
    assert all_lines(tmp_path) == whole


def test_sgd_resumes_with_its_momentum(tmp_path):
    told = OptimiserSpec(name="sgd", lr=0.05, momentum=0.8)
    runs = [spec(method, optimiser=told, probe=FEW) for method in ("bp", "dfa")]
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    loop(tmp_path / "whole", runs)
    interrupt(tmp_path / "parts", 12, runs)
    tensors, _ = read_checkpoint(tmp_path / "parts" / f"{runs[0].run_id}.safetensors")
    assert any(bool(t.any()) for name, t in tensors.items() if name.startswith("first/"))
    assert not any(name.startswith("second/") for name in tensors)
    loop(tmp_path / "parts", runs, resume=True)
    assert all_lines(tmp_path / "parts", runs) == all_lines(tmp_path / "whole", runs)


def test_rows_past_the_checkpoint_are_cut(tmp_path, whole, monkeypatch):
    """A kill: the logs are at epoch 2, the newest checkpoint at epoch 1."""
    interrupt(tmp_path, 7)
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    FleetLoop(fleets.fleet(RUNS), tmp_path, lambda header, row: None, Quiet()).run(resume=True)
    for path, data in kept.items():
        path.write_bytes(data)
    for one in RUNS[1:3]:
        path = tmp_path / f"{one.run_id}.jsonl"
        path.write_bytes(path.read_bytes()[:-40])
    loop(tmp_path, RUNS, resume=True)
    assert all_lines(tmp_path) == whole


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_run_that_was_stopped_stays_stopped(tmp_path, epoch):
    interrupt(tmp_path, 12, on_row=stop_at(RUNS[0].run_id, epoch))
    before = lines(tmp_path / f"{RUNS[0].run_id}.jsonl")
    logs = loop(tmp_path, RUNS, resume=True)
    assert lines(tmp_path / f"{RUNS[0].run_id}.jsonl") == before
    assert logs[0].end.status == "stopped"
    assert all(log.finished for log in logs[1:])


def test_a_log_that_lags_behind_its_checkpoint_is_refused(tmp_path):
    interrupt(tmp_path, 12)
    path = tmp_path / f"{RUNS[1].run_id}.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:3]))
    with pytest.raises(BadFile, match=r"fa-s1-\w+.jsonl: lacks rows up to epoch 2, where its checkpoint stands"):
        loop(tmp_path, RUNS, resume=True)
    path.unlink()
    with pytest.raises(BadFile, match=r"fa-s1-\w+.jsonl: cannot be read"):
        loop(tmp_path, RUNS, resume=True)


def test_checkpoints_are_not_written_more_often_than_said(tmp_path, monkeypatch):
    from creditscope.engine import loop as module

    saved = []
    monkeypatch.setattr(module.FleetState, "save", lambda state, folder: saved.append(state.epoch))
    loop(tmp_path, RUNS[:1])
    assert saved == [4]
    clock = iter(range(0, 10_000, 8))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    saved.clear()
    (tmp_path / "b").mkdir()
    loop(tmp_path / "b", RUNS[:1])
    assert saved[-1] == 4
    assert saved[:-1]
    assert len(saved) < 5


def test_what_is_written_down_after_the_next_epoch_was_trained_is_the_same(tmp_path):
    """As on a GPU, which is asked for the next epoch first: rows, probes and checkpoints are of their own epoch."""
    runs = [spec(m, probe=ProbeSpec(n=16, batch=6, epochs=(0, 1, 2), redraws=3, directions=2)) for m in METHODS]
    folders = tmp_path / "ahead", tmp_path / "in turn"
    for folder in folders:
        folder.mkdir()
        made = FleetLoop(fleets.fleet(runs), folder, lambda header, row: None, Quiet())
        made.fleet.streams.ahead = folder == folders[0]
        told = []
        made.progress.step = lambda members, told=told: told.append("step")
        made.progress.stage = lambda members, epoch, doing, told=told: told.append(f"{doing} {epoch}")
        made.run(resume=False)
        before = told.index("measure 1")
        assert told[:before].count("step") == (10 if folder == folders[0] else 5)
    for one in runs:
        ours, theirs = (lines(folder / f"{one.run_id}.jsonl") for folder in folders)
        assert ours == theirs
        ours, theirs = (read_checkpoint(folder / f"{one.run_id}.safetensors") for folder in folders)
        assert all(torch.equal(ours[0][name], theirs[0][name]) for name in theirs[0])


class RelatedRuns:
    """A pool of one thread that tells what it was given."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(1)
        self.given = []

    def submit(self, *work):
        self.given.append(work[0].__self__.epoch)
        return self.pool.submit(*work)


def written_beside(folder, specs, saves):
    made = FleetLoop(fleets.fleet(specs), folder, lambda header, row: None, Quiet())
    made._writer = saves
    made.run(resume=False)
    return made


def test_checkpoints_written_beside_the_training_are_those_written_at_once(tmp_path, monkeypatch):
    """As on a GPU: each is the state at its own boundary, though training has gone on."""
    monkeypatch.setattr(loop_module, "CHECKPOINT_SECONDS", 0.0)
    for kind in ("beside", "at-once"):
        (tmp_path / kind).mkdir()
    saves = RelatedRuns()
    written_beside(tmp_path / "beside", RUNS, saves)
    assert saves.given == [1, 2, 3, 4]
    loop(tmp_path / "at-once", RUNS)
    for one in RUNS:
        ours, theirs = (
            read_checkpoint(tmp_path / kind / f"{one.run_id}.safetensors") for kind in ("beside", "at-once")
        )
        assert ours[1] == theirs[1]
        assert ours[0].keys() == theirs[0].keys()
        assert all(torch.equal(ours[0][name], theirs[0][name]) for name in ours[0])


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(loop_module, "CHECKPOINT_SECONDS", 0.0)
    trained, saved = [], []
    gate = threading.Event()
    save, begin = FleetState.save, Fleet.begin_epoch

    def slow(state, folder):
        assert gate.wait(60)
        saved.append((state.epoch, tuple(trained)))
        save(state, folder)

    def told(fleet, epoch):
        trained.append(epoch)
        if epoch == 2:
            gate.set()
        begin(fleet, epoch)

    monkeypatch.setattr(FleetState, "save", slow)
    monkeypatch.setattr(Fleet, "begin_epoch", told)
    written_beside(tmp_path, RUNS[:1], ThreadPoolExecutor(1))
    assert saved[0][0] == 1
    assert 2 in saved[0][1], "the first checkpoint was waited for before the second epoch"


def test_a_checkpoint_that_cannot_be_written_beside_is_said(tmp_path, monkeypatch):
    def full(path, data, resume=False):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "write_atomic", full)
    with pytest.raises(CannotWrite, match="No space left on device"):
        written_beside(tmp_path, RUNS[:1], ThreadPoolExecutor(1))
