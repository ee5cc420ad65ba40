"""A plain loop, watched: rows, log, alerts, stop, budget, and the model left alone."""

from importlib import import_module

import pytest
import torch
from scope.nets import Net, same, samples, state_of_model, train
from torch.nn import functional

import creditscope as cs
from creditscope.errors import BadInput, CannotWrite
from creditscope.records import ProbeRow, RunLog
from creditscope.scope import rule_credit

FAST = {"redraws": 19, "directions": 1}
# The room hands out the function of the same name.
watching = import_module("creditscope.scope.watch")


def loop(model, scope, epochs, x, y):
    for _ in range(epochs):
        train(model, x, y, 2)
        scope.step()
        scope.step()
        scope.epoch()


def test_rows_are_those_of_an_audit_at_that_moment(tmp_path):
    x, y = samples()
    model = Net()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    with cs.watch(
        model, probe=(x, y), out=tmp_path, budget=1.0, credit=rule_credit("bp"), name="mine", **FAST
    ) as scope:
        loop(model, scope, 2, x, y)
        scope.epoch(accuracy=0.25, train_loss=1.5, lr=0.1)
    log = scope.log
    assert [row.epoch for row in log.epochs] == [0, 1, 2, 3]
    assert [row.step for row in log.epochs] == [0, 2, 4, 4]
    assert [row.epoch for row in log.probes] == [0, 1, 2, 3]
    assert log.end.status == "finished"
    assert (log.epochs[-1].test_accuracy, log.epochs[-1].train_loss, log.epochs[-1].lr) == (0.25, 1.5, 0.1)
    audited = cs.audit_model(model, loader=(x, y), init=start, **FAST).claims[0].cell.runs[0].epochs[0]
    assert log.epochs[-1].reference == audited.reference
    assert log.epochs[-1].movement == audited.movement
    assert max(log.epochs[0].movement.weights.values()) == 0
    assert scope.audit().claims[0].cell.method == "mine"
    on_disk = RunLog.read(tmp_path / log.name)
    assert on_disk.epochs == log.epochs
    assert on_disk.probes == log.probes
    assert on_disk.end == log.end
    assert cs.audit(tmp_path).to_dict()["cells"][0]["checks"] == cs.audit(log).to_dict()["cells"][0]["checks"]


def test_every_row_is_heard_as_it_is_written():
    x, y = samples()
    heard = []
    with cs.watch(
        Net(), probe=(x, y), budget=1.0, on_row=lambda header, row: heard.append((header, row)), **FAST
    ) as scope:
        scope.epoch()
    log = scope.log
    assert [row for _, row in heard] == list(log.rows())[1:]
    assert all(header == log.header for header, _ in heard)


def test_a_log_is_never_written_over(tmp_path):
    x, y = samples()
    file = tmp_path / "run.jsonl"
    with cs.watch(Net(), probe=(x, y), out=file, **FAST) as scope:
        scope.epoch()
    text = file.read_bytes()
    with pytest.raises(CannotWrite, match=r"run\.jsonl exists"), cs.watch(Net(), probe=(x, y), out=file, **FAST):
        raise AssertionError("never reached")
    assert file.read_bytes() == text


def test_watching_changes_neither_model_nor_training():
    x, y = samples()

    def trained(watched):
        model = Net()
        torch.manual_seed(11)
        if not watched:
            for _ in range(3):
                train(model, x, y, 2)
            return model
        with cs.watch(model, probe=(x, y), budget=1.0, **FAST) as scope:
            loop(model, scope, 3, x, y)
        return model

    # Two models: what says where a thing lies differs.
    here = {"grads": [], "storage": {}, "places": {}, "attributes": []}
    one, two = (state_of_model(trained(watched)) | here for watched in (True, False))
    assert same(one, two)


def test_every_second_epoch_and_always_the_last():
    x, y = samples()
    model = Net()
    with cs.watch(model, probe=(x, y), every=2, budget=1.0, **FAST) as scope:
        loop(model, scope, 5, x, y)
    assert [row.epoch for row in scope.log.epochs] == [0, 2, 4, 5]
    assert scope.log.probes[-1].epoch == 5
    assert scope.log.probes[-1].fidelity is not None


def test_without_a_budget_only_the_first_and_the_last_look_are_taken():
    x, y = samples()
    model = Net()
    with cs.watch(model, probe=(x, y), budget=0.0, **FAST) as scope:
        loop(model, scope, 3, x, y)
    assert [row.epoch for row in scope.log.epochs] == [0, 3]
    assert scope.skipped == [1, 2]
    said = [row for row in scope.log.probes if row.epoch in (1, 2)]
    assert all("skipped: measuring would take more than 0 of the time" in row.not_measured["fidelity"] for row in said)
    reason = "not measured after epochs 1, 2: the budget of 0 of the time was spent"
    assert scope.log.end.reason == f"{reason}; the last look was made on 16 samples to keep the budget of 0"
    assert scope.log.last.hidden.n == 16


def test_the_budget_holds_on_a_clock_of_its_own(monkeypatch):
    """An epoch takes 10 s, a per-epoch observation 2 s, an expensive one 5 s: at most a tenth of the time is spent."""
    clock = [0.0]
    look, expensive = watching.observe_model, watching.expensive_row

    def takes(seconds, function):
        def slow(*args, **given):
            clock[0] += seconds
            return function(*args, **given)

        return slow

    monkeypatch.setattr(watching.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(watching, "observe_model", takes(2, look))
    monkeypatch.setattr(watching, "expensive_row", takes(5, expensive))
    model, shares = Net(), []
    with cs.watch(model, probe=samples(), budget=0.1, **FAST) as scope:
        for _ in range(40):
            clock[0] += 10
            scope.epoch()
            shares.append(scope.overhead)
    # The first look is made before there is time to take a share of; from the next one on the share is kept.
    measured = [row.epoch for row in scope.log.epochs]
    assert max(shares[measured[1] - 1 :]) <= 0.1
    assert scope.overhead <= 0.1
    assert max(shares[measured[1] - 1 :]) > 0.05
    assert 0 < len(scope.skipped) < 40
    assert len(scope.log.epochs) + len(scope.skipped) == 41


def explode(model):
    model.blocks[1].forward = lambda h: 1000 * h


def test_an_alert_is_heard_once_and_again_when_it_recovers():
    heard = []
    model = Net()
    plain = model.blocks[1].forward
    with cs.watch(model, probe=samples(), budget=1.0, on_alert=heard.append, **FAST) as scope:
        scope.epoch()
        explode(model)
        scope.epoch()
        scope.epoch()
        model.blocks[1].forward = plain
        scope.epoch()
    scale = [alert for alert in heard if alert.check == "scale"]
    assert [(a.epoch, a.recovered, a.stop) for a in scale] == [(2, False, False), (4, True, False)]
    assert "growth 1000× > 50×" in scale[0].message
    assert scope.alerts == heard


def test_an_alert_is_logged_where_nobody_listens(caplog):
    model = Net()
    with cs.watch(model, probe=samples(), budget=1.0, **FAST) as scope:
        explode(model)
        scope.epoch()
    assert any("scale fires" in record.message for record in caplog.records)


def test_an_alert_can_stop_the_loop():
    model, done = Net(), []
    with cs.watch(model, probe=samples(), budget=1.0, stop=True, on_alert=lambda alert: None, **FAST) as scope:
        for epoch in range(1, 9):
            train(model, *samples(), 1)
            if epoch == 3:
                explode(model)
            done.append(epoch)
            scope.epoch()
    assert done == [1, 2, 3]
    assert scope.stopped.check == "scale"
    assert scope.log.end.status == "stopped"
    assert scope.log.end.reason == scope.stopped.message


def test_an_error_of_the_loop_is_logged_and_passed_on():
    model = Net()
    before = state_of_model(model)
    with pytest.raises(ZeroDivisionError), cs.watch(model, probe=samples(), **FAST) as scope:  # noqa: PT012
        scope.epoch()
        _ = 1 / 0
    assert scope.log.end.status == "failed"
    assert scope.log.end.reason == "ZeroDivisionError: division by zero"
    assert same(before, state_of_model(model))


def test_a_run_that_diverges_is_said_to():
    model = Net()
    with cs.watch(model, probe=samples(), budget=1.0, on_alert=lambda alert: None, **FAST) as scope:
        with torch.no_grad():
            model.embed.weight.fill_(float("nan"))
        scope.epoch()
    assert scope.log.end.status == "diverged"
    assert str(scope.audit().claims[0].verdict.kind) == "walked back"


def test_a_watched_twin_is_the_baseline():
    x, y = samples(120)
    model = Net()
    twin = cs.frozen_copy(model)
    logs = []
    for one in (model, twin):
        with cs.watch(one, probe=(x, y), budget=1.0, name="mine", **FAST) as scope:
            loop(one, scope, 3, x, y)
        logs.append(scope.log)
    assert logs[1].spec.is_baseline
    depth = next(o for o in cs.audit(logs).claims[0].outcomes if o.name == "depth")
    difference = logs[0].epochs[-1].balanced_accuracy - logs[1].epochs[-1].balanced_accuracy
    assert depth.evidence.value == pytest.approx(100 * difference)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"every": 0}, "wanted every to be a whole number of at least 1, got 0; 1 measures after each epoch"),
        ({"budget": 5}, "wanted budget as a share of the time in [0, 1], got 5; 0.05 is five per cent"),
        ({"blocks": ["nope"]}, "the model has no block 'nope'; known: "),
    ],
)
def test_bad_settings_are_refused(given, says):
    with pytest.raises(BadInput) as error:
        cs.watch(Net(), probe=samples(), **given)
    assert says in str(error.value)


def test_an_accuracy_in_per_cent_and_an_epoch_after_the_end_are_refused():
    with cs.watch(Net(), probe=samples(), **FAST) as scope:
        with pytest.raises(BadInput, match=r"wanted accuracy as a fraction in \[0, 1\], got 91; write 0.91 for 91 %"):
            scope.epoch(accuracy=91)
        scope.epoch()
    with pytest.raises(BadInput, match="this watch has ended"):
        scope.epoch()
    with pytest.raises(BadInput, match="wanted the twin's logs or its accuracy, got a module"):
        scope.audit(baseline=Net())


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="out=runs: cannot be made"):
        cs.watch(Net(), probe=samples(), out=tmp_path / "file" / "runs")


def test_the_passed_over_row_names_every_field_of_the_expensive_set():
    with cs.watch(Net(), probe=samples(), budget=0.0, **FAST) as scope:
        scope.epoch()
        scope.epoch()
    row = next(row for row in scope.log.probes if row.epoch == 1)
    expensive = set(ProbeRow.model_fields) - {"kind", "epoch", "step", "not_measured", "nonfinite", "time_probe"}
    assert expensive <= set(row.not_measured)


def test_a_loss_of_ones_own():
    x, y = samples()
    with cs.watch(Net(), probe=(x, y), loss_fn=lambda z, t: functional.cross_entropy(z, t), **FAST) as scope:
        scope.epoch()
    assert scope.log.epochs[0].reference is not None


def test_an_accuracy_of_the_users_own_has_no_correctness_per_sample():
    """What the untrained net got right must not stand at the end of a trained one."""
    with cs.watch(Net(), probe=samples(), **FAST) as scope:
        scope.epoch(accuracy=0.5)
    assert scope.log.end.test_accuracy == 0.5
    assert scope.log.end.correct is None


def test_the_guard_is_asked_at_expensive_looks_only(monkeypatch):
    asked = []

    def guard(snapshot):
        asked.append(snapshot.epoch)
        return True

    monkeypatch.setattr(watching, "samples_are_independent", guard)
    with cs.watch(Net(), probe=samples(), budget=1.0, **FAST) as scope:
        for _ in range(7):
            scope.epoch()
    assert asked == [0, 1, 2, 3, 5]
    assert [row.epoch for row in scope.log.epochs if row.reference is not None] == list(range(8))


class Mixes(Net):
    """Blocks that mix their samples behind a gain that starts at zero."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.zeros(()))
        for block in self.blocks:
            block.linear.register_forward_hook(lambda _, args, out: out + self.gain * (out - out.mean(0)))


def test_samples_that_begin_to_mix_are_found():
    model = Mixes()
    with cs.watch(model, probe=samples(), budget=1.0, **FAST) as scope:
        scope.epoch()
        with torch.no_grad():
            model.gain.fill_(1.0)
        scope.epoch()
    assert [row.epoch for row in scope.log.epochs if row.reference is not None] == [0, 1]
    assert any("samples are not independent" in note for note in scope.log.problems)


def test_correctness_is_that_of_every_sample_given():
    """Few samples are those the probes see; of many, only the first are."""
    for n in (48, 1500):
        x, y = samples(n)
        model = Net()
        with cs.watch(model, probe=(x, y), **FAST) as scope:
            scope.epoch()
        model.eval()
        assert scope.log.end.n_test == n
        assert scope.log.end.test_accuracy == pytest.approx(float((model(x).argmax(1) == y).double().mean()))
