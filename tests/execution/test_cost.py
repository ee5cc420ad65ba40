"""The time of a sweep: each kind of run is timed once, and counted as often as it is there."""

import pytest
import torch
from cases.sweeps import tiny_runs

from creditscope.engine.estimate import Estimate
from creditscope.execution import sweep as module
from creditscope.execution.plan import Limits, survey
from creditscope.execution.remote import RemoteContext


def test_one_run_of_each_kind_is_timed(tmp_path, monkeypatch):
    runs = tiny_runs(tmp_path)
    timed = []

    def fake(fleet):
        timed.append(fleet.spec.rule)
        return Estimate(train={"bp": 1.0, "dfa": 10.0}[fleet.spec.rule], measure=0.5, probe=0.0)

    monkeypatch.setattr(module, "estimate", fake)
    plan = survey(tmp_path / "runs", runs, False, Limits(runs=1)).plan(threads=1)
    seconds = module.sweep_seconds(plan, RemoteContext({"synthetic": "synthetic"}), torch.device("cpu"))
    assert seconds == pytest.approx(2 * 1.5 + 2 * 10.5)
    assert sorted(timed) == ["bp", "dfa"]
