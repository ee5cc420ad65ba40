"""The estimate counts what the loop will do; how long that takes is the machine's affair."""

import pytest
from cases import fleets
from cases.fleets import spec

from creditscope.engine import estimate as module
from creditscope.engine.estimate import Estimate, estimate
from creditscope.engine.loop import FleetLoop
from creditscope.execution.context import Quiet
from creditscope.records import ProbeSpec, RunLog

FEW = {"n": 8, "batch": 8, "redraws": 3, "directions": 2}


def test_the_total_is_the_sum():
    assert Estimate(1.0, 2.0, 4.0).total == 7.0


def test_each_part_is_its_unit_times_its_count(monkeypatch):
    """With a clock that says one second for everything."""

    def second(fleet, work):
        work()
        return 1.0

    monkeypatch.setattr(module, "_seconds", second)
    runs = [spec(m, probe=ProbeSpec(**FEW, epochs=(0, 2))) for m in ("bp", "dfa", "dfa@frozen")]
    found = estimate(fleets.fleet(runs))
    timed = 5  # all steps of an epoch, since there are fewer than ten
    assert found.train == pytest.approx(20 / timed)
    assert found.measure == 5
    assert found.probe == 3 + 3 + 1


@pytest.mark.parametrize("listed", [None, (), (0, 3)])
def test_expensive_probes_are_counted_as_the_loop_takes_them(tmp_path, listed):
    runs = [spec(m, probe=ProbeSpec(**FEW, epochs=listed)) for m in ("bp", "bp@frozen")]
    fleet = fleets.fleet(runs)
    counted = [module._expensive_count(fleet, run, fleets.EPOCHS) for run in range(2)]
    FleetLoop(fleet, tmp_path, lambda header, row: None, Quiet()).run(resume=False)
    assert counted == [len(RunLog.read(tmp_path / f"{one.run_id}.jsonl").probes) for one in fleet.specs]
