"""First firing epochs, recovery, and what an alert would have saved."""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol import audit


def timeline(log):
    (run,) = audit([log], baseline=0.3).claims[0].timelines
    return run


def grown(*growth):
    log = cases.run(epochs=len(growth) - 1)
    return cases.edit(log, lambda row: {"growth": [growth[row.epoch], 1.0, 1.0, 1.0]})


def test_an_alert_saves_every_epoch_after_the_first_firing():
    run = timeline(grown(1, 1, 60, 1, 60, 70, 80, 90, 90, 90, 90))
    assert (run.firings["scale"].first, run.firings["scale"].recovered) == (2, None)
    assert (run.alert_check, run.alert_epoch, run.saved_epochs) == ("scale", 2, 8)
    assert run.saved_fraction == pytest.approx(0.8)
    assert run.saved_seconds == pytest.approx(8 * 2.0)


def test_a_run_that_recovers_saves_nothing():
    run = timeline(grown(1, 60, 60, 1, 1, 1))
    assert (run.firings["scale"].first, run.firings["scale"].recovered) == (1, 3)
    assert (run.alert_epoch, run.saved_epochs) == (None, None)


def test_seconds_that_were_not_logged_are_not_invented():
    run = timeline(cases.edit(grown(1, 60, 60), lambda row: {"time_epoch": None}))
    assert (run.saved_epochs, run.saved_seconds) == (1, None)


def test_depth_is_no_live_check():
    shape = replace(cases.ALIGNED, accuracy=0.2)
    (run,) = audit([cases.run(shape=shape)], "published", baseline=0.3).claims[0].timelines
    assert list(run.firings) == ["depth"]
    assert run.alert_epoch is None


def test_the_earliest_lasting_check_alerts():
    (run,) = audit([cases.run("dfa", shape=cases.COLLAPSED)], baseline=0.3).claims[0].timelines
    assert run.alert_epoch == min(h.first for n, h in run.firings.items() if n != "depth")


def test_runs_that_share_a_name_keep_their_own_history():
    early, late = (
        replace(
            run, name="watched", header=run.header.model_copy(update={"spec": run.spec.model_copy(update={"seed": s})})
        )
        for s, run in ((1, grown(1, 60, 60, 60)), (2, grown(1, 1, 1, 61)))
    )
    found = audit([early, late]).claims[0].timelines
    assert [(run.seed, run.firings["scale"].first) for run in found] == [(1, 1), (2, 3)]
