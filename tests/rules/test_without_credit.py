"""The whole path of rules that deliver no credit: trained, probed, audited, drawn and reported."""

import pytest
import torch
from cases import fleets
from cases.fleets import spec

import creditscope as cs
from creditscope.engine import fleet as fleet_module
from creditscope.engine.traced import Traced
from creditscope.figures import write_figure
from creditscope.records import ProbeSpec, RunLog
from creditscope.records.load import load_logs
from creditscope.report import write_report

CLAIMS = ("pepita", "fg", "local", "ff", "local+anchor1")
CONTROLS = ("anchor1", "bp-deep", "local@frozen")
PROBE = ProbeSpec(n=16, batch=16, epochs=(), redraws=19, directions=2)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """One epoch each, the claims on two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    fleets.train_fleets(
        fleets.context(folder), [[*map(one, CLAIMS), *(one(method, 2) for method in CLAIMS), *map(one, CONTROLS)]]
    )
    return folder


def one(method, seed=1):
    return spec(method, seed=seed, epochs=1, probe=PROBE)


@pytest.mark.parametrize("method", CLAIMS)
def test_what_can_be_measured_is_and_the_rest_is_named(logs, method):
    (path,) = logs.glob(f"{one(method).run_id}.jsonl")
    log = RunLog.read(path)
    for row in log.epochs:
        assert row.cosine is None
        assert row.gamma is None
        assert len(row.growth) == 3
    for row in log.probes:
        assert row.null is None
        assert "rho.credit" in row.not_measured
        assert None not in row.rho.control
        assert len(row.gradient_cosine) == 3
        assert row.gradient_null.kind == "shuffled labels"
        assert row.ladder is not None
    assert len(log.probes[-1].gradient_null.draws) == 3
    assert log.header.locality == {"local": True, "ff": True, "local+anchor1": False}.get(method)


def test_the_audit_asks_each_what_its_family_can_be_asked(logs):
    found = {cell.cell.method: cell for cell in cs.audit(logs).claims}
    families = {method: found[method].cell.family for method in (*CLAIMS, "anchor1", "bp-deep")}
    assert families == {
        **dict.fromkeys(("pepita", "fg", "local+anchor1"), "update"),
        **dict.fromkeys(("local", "ff"), "objective"),
        **dict.fromkeys(("anchor1", "bp-deep"), "signal"),
    }
    for method in ("local", "ff"):
        by_name = {outcome.name: outcome for outcome in found[method].outcomes}
        assert str(by_name["direction"].ruling) == "not applicable"
        assert str(by_name["ladder"].ruling) != "not applicable"
    (depth,) = (outcome for outcome in found["local"].outcomes if outcome.name == "depth")
    assert "over backprop with deep supervision (bp-deep)" in depth.reason
    for method in ("pepita", "fg", "local+anchor1"):
        by_name = {outcome.name: outcome for outcome in found[method].outcomes}
        assert by_name["direction"].evidence.value is not None, method


@pytest.mark.parametrize("name", ["hero", "snapshot"])
def test_figures_leave_out_what_has_no_credit(logs, tmp_path, name):
    target = tmp_path / f"{name}.svg"
    write_figure(name, load_logs([logs]).logs, target)
    assert target.stat().st_size > 1000


@pytest.mark.parametrize("ending", ["html", "md", "tex"])
def test_the_report_is_written(logs, tmp_path, ending):
    target = tmp_path / f"report.{ending}"
    write_report(load_logs([logs]), target)
    text = target.read_text(encoding="utf-8")
    for method in CLAIMS:
        assert method in text
    assert "locality shown" in text
    assert "locality not shown, so it is judged by its updates" in text


def test_traced_they_train_as_they_do_called(monkeypatch, caplog):
    methods = ("fg", "ff", "local+anchor2")
    runs = [spec(method, epochs=2) for method in methods]
    called, _ = fleets.trained(runs, epochs=2)
    monkeypatch.setattr(fleet_module, "WORTH_TRACING", 0)
    traced, _ = fleets.trained(runs, epochs=2)
    assert all(isinstance(credit, Traced) for credit in traced._credit.values())
    assert "tracing failed" not in caplog.text
    for name, p in called.params.items():
        torch.testing.assert_close(traced.params[name], p, rtol=1e-9, atol=1e-12)
