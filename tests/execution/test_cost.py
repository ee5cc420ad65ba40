"""The time of a sweep: a fleet is timed as it trains, and fleets of the same make are timed once."""

import pytest
import torch
from cases.sweeps import tiny_runs

from creditscope.engine.estimate import Estimate
from creditscope.execution import sweep as module
from creditscope.execution.plan import Limits, survey
from creditscope.execution.remote import RemoteContext


@pytest.mark.parametrize(
    ("size", "sizes", "seconds"),
    [(1, [1, 1], 4 * 1.5), (4, [4], 4.5), (3, [2, 2], 2 * 2.5)],
)
def test_fleets_of_one_make_are_timed_once(tmp_path, monkeypatch, size, sizes, seconds):
    """Two runs of bp and two of dfa: alone, all together, and each rule as a fleet."""
    runs = tiny_runs(tmp_path)
    timed = []

    def fake(fleet):
        timed.append(len(fleet.specs))
        return Estimate(train=1.0 * len(fleet.specs), measure=0.5, probe=0.0)

    monkeypatch.setattr(module, "estimate", fake)
    plan = survey(tmp_path / "runs", runs, False, Limits(runs=size)).plan(threads=1)
    source = RemoteContext({"synthetic": "synthetic"})
    assert module.sweep_seconds(plan, source, torch.device("cpu")) == pytest.approx(seconds)
    assert sorted(timed) == sizes
