"""The time of a sweep: each kind of run is timed once, and counted as often as it is there."""

import pytest
import torch
from cases.sweeps import tiny_runs

from creditscope.engine.estimate import Estimate
from creditscope.execution import cost
from creditscope.execution.sweep import plan_sweep


def test_one_run_of_each_kind_is_timed(tmp_path, monkeypatch):
    runs = tiny_runs(tmp_path)
    timed = []

    def fake(fleet):
        timed.append(fleet.spec.rule)
        return Estimate(train={"bp": 1.0, "dfa": 10.0}[fleet.spec.rule], measure=0.5, probe=0.0)

    monkeypatch.setattr(cost, "estimate", fake)
    plan = plan_sweep(runs, tmp_path / "runs", data={"synthetic": "synthetic"}, fleet_size=1)
    assert cost.sweep_seconds(plan, torch.device("cpu")) == pytest.approx(2 * 1.5 + 2 * 10.5)
    assert sorted(timed) == ["bp", "dfa"]
