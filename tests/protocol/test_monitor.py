"""The monitor, fed row by row, says what the audit of the finished log says."""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.monitor import Monitor


def feed(monitor, log):
    return [alert for row in log.rows() for alert in monitor.on_row(log.header, row)]


@pytest.mark.parametrize("sabotage", cases.SABOTAGE)
def test_live_and_afterwards_agree_on_the_first_firing_epoch(sabotage):
    logs = [cases.SABOTAGE[sabotage][0](cases.run("dfa", seed, epochs=8)) for seed in cases.SEEDS]
    found = {alert.check: alert.epoch for alert in feed(Monitor(), logs[0])}
    (claim,) = audit(logs, baseline=0.3).claims
    history = {o.name: o.first_epoch for o in claim.outcomes if o.name != "depth" and o.first_epoch is not None}
    assert set(found) == set(history) == cases.SABOTAGE[sabotage][1]
    if "direction" in found:
        # All seeds together fire at the first trained probe; one alone speaks after the third in a row.
        assert (history.pop("direction"), found.pop("direction")) == (1, 3)
    assert found == history


def test_a_healthy_run_is_left_in_peace():
    for method, shape in (("bp", cases.BP), ("dfa", cases.ALIGNED)):
        assert feed(Monitor(), cases.run(method, shape=shape)) == []


def test_baselines_are_never_watched():
    assert feed(Monitor(), cases.run("dfa@frozen", shape=cases.COLLAPSED)) == []


def test_one_alert_when_it_begins_and_one_when_it_recovers():
    log = cases.edit(cases.run(epochs=6), lambda row: {"growth": [70.0 if 2 <= row.epoch <= 4 else 1.0] * 4})
    alerts = feed(Monitor("published"), log)
    assert [(a.check, a.epoch, a.recovered, a.stop) for a in alerts] == [
        ("scale", 2, False, False),
        ("scale", 5, True, False),
    ]
    assert alerts[0].message == f"epoch 2: scale fires on {log.spec.run_id}; growth 70× > 50×; at block 0"


def test_stop_asks_for_the_run_to_be_stopped():
    alerts = feed(Monitor("published", mode="stop"), cases.run(shape=cases.COLLAPSED))
    assert {a.check for a in alerts} == {"scale", "reference"}
    assert all(a.stop and a.message.endswith("stopping it") for a in alerts)


def test_direction_needs_three_probes_in_a_row():
    log = cases.flipped_sign(cases.run("dfa", epochs=5))
    assert [p.epoch for p in log.probes] == [0, 1, 2, 3, 5]
    assert [(a.check, a.epoch) for a in feed(Monitor(), log)] == [("direction", 3)]
    broken = replace(log, probes=tuple(p if p.epoch != 2 else cases.run("dfa", epochs=5).probes[2] for p in log.probes))
    assert feed(Monitor(), broken) == []


def test_many_runs_are_kept_apart():
    monitor, good, bad = Monitor(), cases.run("dfa", 1), cases.run("dfa", 2, cases.COLLAPSED)
    alerts = []
    for a, b in zip(good.epochs, bad.epochs, strict=True):
        alerts += [*monitor.on_row(good.header, a), *monitor.on_row(bad.header, b)]
    assert {alert.run for alert in alerts} == {bad.spec.run_id}


def test_thresholds_can_be_set():
    log = cases.edit(cases.run(), lambda row: {"growth": [30.0] * 4})
    assert feed(Monitor(), log) == []
    assert {a.check for a in feed(Monitor(thresholds={"scale": 20}), log)} == {"scale"}


def test_a_check_that_fails_never_ends_the_training():
    monitor = Monitor()
    log = cases.run()
    broken = log.epochs[1].model_copy(update={"growth": "not a list"})
    assert monitor.on_row(log.header, broken) == []
    assert "scale failed at epoch 1" in monitor.problems[0]
