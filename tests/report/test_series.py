"""Every number behind a plot, found again in the JSONL files by plain reading."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol import cases
from report.cases import Page

from creditscope.protocol.audit import audit
from creditscope.records.load import load_logs
from creditscope.report import render_report
from creditscope.report.series import embed, short

GOLDEN = Path(__file__).parents[1] / "golden" / "published"
FIVE_DIGITS = 1e-4


def raw(folder, run):
    """Header and rows of the log behind a run of the page, by kind."""
    rows = [json.loads(line) for line in (folder / run["log"]).read_text().splitlines()]
    return {kind: [row for row in rows if row["kind"] == kind] for kind in ("header", "epoch", "probe", "end")}


def same(shown, wanted):
    assert np.allclose(np.array(shown, dtype=float), np.array(wanted, dtype=float), rtol=FIVE_DIGITS, equal_nan=True)


def test_every_log_is_there_once(page, folder):
    assert sorted(run["log"] for run in page.data["runs"]) == sorted(path.name for path in folder.iterdir())


def test_values_of_every_epoch(page, folder):
    for run in page.data["runs"]:
        rows = raw(folder, run)["epoch"]
        values = run["values"]
        assert run["epochs"] == [row["epoch"] for row in rows]
        same(values["hidden"], np.transpose([row["hidden"]["median"] for row in rows]))
        same(values["gain"], np.transpose([row["gain"] for row in rows]))
        same(values["reference"], np.transpose([row["reference"]["median"] for row in rows]))
        same(values["growth"], np.transpose([row["growth"] for row in rows]))
        same(values["growth_max"], [[max(row["growth"]) for row in rows]])
        same(values["cosine"], np.transpose([row["cosine"]["mean"] for row in rows]))
        same(values["published"], np.transpose([row["cosine_published"]["mean"] for row in rows]))
        same(values["accuracy"], [[row["test_accuracy"] for row in rows]])
        same(values["test_loss"], [[row["test_loss"] for row in rows]])
        same(values["gamma_published"], [[row["gamma"]["published"] for row in rows]])


def test_movement_is_that_of_the_matrix_that_moved_most_and_the_block_that_moved_least(page, folder):
    for run in page.data["runs"]:
        blocks = []
        for row in raw(folder, run)["epoch"]:
            weights, names = row["movement"]["weights"], row["movement"]["blocks"]
            blocks.append([max(weights[name] for name in block) for block in names])
        same(run["values"]["movement"], np.transpose(blocks))
        same(run["values"]["stillest"], [np.min(blocks, axis=1)])


def test_values_of_every_probe(page, folder):
    for run in page.data["runs"]:
        rows = raw(folder, run)["probe"]
        assert run["probes"] == [row["epoch"] for row in rows]
        error = [[math.sqrt(1 - phi**2) for phi in row["fidelity"]["median"]] for row in rows]
        same(run["values"]["fidelity"], np.transpose(error))
        same(run["values"]["rho"], np.transpose([row["rho"]["credit"] for row in rows]))
        same(run["values"]["nudge"], np.transpose([row["nudge"]["efficiency"] for row in rows]))
        same(run["values"]["drift"], [[row["drift"]["at_128"] for row in rows]])
        same(run["values"]["probe_accuracy"], np.transpose([row["probe_accuracy"] for row in rows]))


def test_the_null_band_holds_98_percent_of_a_normal_null(page, folder):
    run = next(run for run in page.data["runs"] if run["log"].startswith("dfa-rms-s42"))
    for at, row in enumerate(raw(folder, run)["probe"]):
        for state in range(5):
            low, high = (run["nulls"]["cosine"][edge][state][at] for edge in ("low", "high"))
            mean, sd = row["null"]["mean"][state], row["null"]["sd"][state]
            inside = np.random.default_rng(0).normal(mean, sd, 200_000)
            assert np.mean((inside > low) & (inside < high)) == pytest.approx(0.98, abs=0.002)


def test_exact_states_have_no_band(page):
    bp = next(run for run in page.data["runs"] if run["log"].startswith("bp-s42"))
    assert bp["exact"] == [0, 1, 2, 3, 4]
    assert "cosine" not in bp["nulls"]


def test_the_margin_is_taken_from_the_twin_of_the_same_seed(page, folder):
    twins = {}
    for path in folder.iterdir():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        accuracy = {row["epoch"]: row["test_accuracy"] for row in rows if row["kind"] == "epoch"}
        twins[path.name.rsplit("-", 1)[0]] = accuracy
    for run in page.data["runs"]:
        stem = run["log"].rsplit("-", 1)[0]
        if "@" in stem:
            assert "margin" not in run["values"]
            continue
        method, seed = stem.rsplit("-", 1)
        wanted = [100 * (twins[stem][epoch] - twins[f"{method}@frozen-{seed}"][epoch]) for epoch in run["epochs"]]
        assert np.allclose(run["values"]["margin"], [wanted], atol=1e-4)


def test_lines_are_the_thresholds_of_the_protocol(logs):
    data = Page(render_report(audit(logs, thresholds={"scale": 40.0, "depth": 3.0}))).data
    lines = {name: found for plot in data["plots"] for name, found in plot["lines"].items()}
    assert [line["value"] for line in lines["growth_max"]] == [40.0]
    assert 3.0 in [line["value"] for line in lines["margin"]]
    assert [line["value"] for line in lines["accuracy"]] == [0.1]
    assert lines["fidelity"][0]["value"] == pytest.approx(math.sqrt(1 - 0.9999**2))


def test_the_floor_stands_on_the_quantity_that_the_protocol_judges(logs):
    for protocol, judged, other in (("standard", "gain", "reference"), ("published", "reference", "gain")):
        data = Page(render_report(logs, protocol=protocol)).data
        lines = next(plot["lines"] for plot in data["plots"] if plot["id"] == "plot-reference")
        assert [line["value"] for line in lines[judged]] == [pytest.approx(1.28e-5)]
        assert other not in lines


def test_published_layouts_are_shown_in_units_per_sample():
    loaded = load_logs(GOLDEN)
    data = Page(render_report(audit(loaded, "published", baseline=0.349))).data
    by_name = {log.name: log for log in loaded.logs}
    shown = [run for run in data["runs"] if "reference" in run["values"]]
    assert shown
    for run in shown:
        log = by_name[run["log"]]
        probe = log.spec.probe
        stated = probe is not None and probe.reduction == "mean" and probe.batch is not None
        factor = probe.batch if stated else 1 if "reference_units" in (log.header.source or {}) else None
        assert factor is not None
        wanted = [[None if v is None else v * factor for v in row.reference.median] for row in log.epochs]
        same(run["values"]["reference"], np.transpose(np.array(wanted, dtype=float)))


def test_firing_epochs_are_those_of_the_audit(page, folder):
    for run in page.data["runs"]:
        rows = raw(folder, run)["epoch"]
        over = [row["epoch"] for row in rows if max(row["growth"]) > 50]
        assert run["fires"].get("scale") == (over[0] if over else None)


def test_a_check_that_passes_at_the_end_is_marked_nowhere():
    logs = cases.healthy("dfa")
    steep = cases.edit(logs[0], lambda row: {"growth": [60.0 if row.epoch == 2 else 1.1] * 4})
    page = Page(render_report([steep, *logs[1:]]))
    assert [run["fires"] for run in page.data["runs"]] == [{}] * len(logs)
    rows = page.table("method", "seed", "fires since epoch")
    assert [row["fired, then recovered"] for row in rows] == ["scale 2, recovered 3", "–", "–"]
    assert {row["fires since epoch"] for row in rows} == {"–"}


def test_seeds_judged_together_are_marked_together(page):
    """The collapsed method fires by scale in each run and, from epoch 1 on, as a whole by direction and depth."""
    fires = {run["log"]: run["fires"] for run in page.data["runs"] if run["log"].startswith("dfa-rms-s")}
    assert len(fires) == 3
    assert all({"direction": 1, "depth": 1}.items() <= marks.items() for marks in fires.values())


def test_the_margin_is_over_the_opponent_that_decides():
    """A readout that is stronger than the twin is what the margin is taken from."""
    logs = [*cases.cell("dfa", cases.ALIGNED), *cases.opponents("dfa", cases.replace(cases.FROZEN, accuracy=0.30))]
    strong = cases.cell("bp@readout", cases.replace(cases.READOUT, accuracy=0.35))
    logs = [log for log in logs if "readout" not in log.name] + strong
    run = next(run for run in Page(render_report(logs)).data["runs"] if run["log"].startswith("dfa-s42"))
    assert run["values"]["margin"][0][-1] == pytest.approx(10.0)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_short_keeps_five_digits(value):
    shown = short(value)
    if not math.isfinite(value):
        assert shown is None
    else:
        assert shown == pytest.approx(value, rel=1e-4)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_embedded_text_cannot_end_its_element(value):
    text = embed(value)
    assert json.loads(text) == value
    assert not set(text) & {"<", ">", "&", "\u2028", "\u2029"}
