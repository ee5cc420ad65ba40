"""Deep statistics where a log lacks something."""

import numpy as np
import pytest
from figures.cases import run, runs

from creditscope.figures.deep import deep_cosine, deep_null, deep_rho, last_probed, last_usable
from creditscope.records import RunLog
from creditscope.records.measured import Cosines


def without_draws(log: RunLog) -> RunLog:
    probes = tuple(p.model_copy(update={"null": p.null.model_copy(update={"draws": None})}) for p in log.probes)
    return RunLog(log.name, log.header, log.epochs, probes, log.end)


def test_null_spread_from_standard_deviations_alone():
    log = without_draws(run("dfa-rms+pen0.01"))
    null = log.probes[-1].null
    mean, redraws = deep_null([log], 30)
    assert mean.high - mean.y == pytest.approx(np.linalg.norm(null.sd[2:]) / 3)
    assert redraws == null.redraws


def test_exact_states_do_not_count_unless_asked():
    log = run("fa-block")
    values = log.epochs[-1].cosine.mean
    assert deep_cosine([log], 30).y == pytest.approx(np.mean(values[2:4]))
    assert deep_cosine([log], 30, exact_too=True).y == pytest.approx(np.mean(values[2:]))
    assert deep_cosine([run("bp")], 30).y is None


def test_what_was_not_measured_is_unknown():
    log = run("dfa-rms", probes=False)
    assert deep_rho([log], 30).y is None
    assert deep_null([log], 30)[0].y is None
    assert last_usable([log]) is None
    assert last_probed([log]) == 30
    bare = log.epochs[-1].model_copy(update={"cosine": None})
    assert deep_cosine([RunLog(log.name, log.header, (bare,), ())], 30).y is None


def test_one_seed_below_the_floor_ends_the_usable_epochs():
    sick, well = runs("dfa-rms", seeds=(1, 2))
    assert last_usable([well]) == last_usable([sick, well])
    rows = tuple(
        row.model_copy(update={"reference": row.reference.model_copy(update={"median": [1e-9] * 5})})
        if row.epoch >= 2
        else row
        for row in sick.epochs
    )
    assert last_usable([RunLog("x", sick.header, rows, sick.probes, sick.end), well]) == 1


def test_undefined_cosines_are_skipped():
    log = run("dfa-rms")
    cosine = Cosines(mean=[0.1, 0.1, 0.2, None, 0.4], status=["ok", "ok", "ok", "zero-vector", "ok"])
    row = log.epochs[-1].model_copy(update={"cosine": cosine})
    assert deep_cosine([RunLog("x", log.header, (row,), ())], 30).y == pytest.approx(0.3)
