"""‖g_L‖ of one log is the same number, in the same units, wherever it is shown."""

import json
import re
from pathlib import Path

import pytest
from figures.cases import run
from report.cases import Page
from typer.testing import CliRunner

from creditscope.cli import app
from creditscope.cli.display import summary_text
from creditscope.figures import hero_table, snapshot_table
from creditscope.integrations import scalars
from creditscope.protocol.audit import audit
from creditscope.protocol.present import runs_table
from creditscope.records import LogWriter, ProbeSpec
from creditscope.records.load import load_logs
from creditscope.report import render_report
from creditscope.report.form import per_layer_table
from creditscope.studies.partial import penalty_layout

GOLDEN = Path(__file__).parents[1] / "golden" / "published" / "snapshot_evolution_s42.json"
UNIT = "per sample, sum-reduced"
LAST = 4


def published(folder):
    """The file of the paper: mean-reduced, and it says over how many samples."""
    content = json.loads(GOLDEN.read_text())
    size = content["config"]["probe_size"]
    assert content["config"]["reduction"] == "mean"
    series = {rule: content[f"{rule}_log"][-1]["bp_grad_norms_per_sample_med"][-1] for rule in ("bp", "dfa")}
    return GOLDEN, {rule: norm * size for rule, norm in series.items()}


def written(probe, factor):
    """One of our own files with norms in other units."""

    def write(folder):
        log = run("dfa", probe=probe)
        writer = LogWriter(folder / log.name)
        writer.create(log.header)
        for row in list(log.rows())[1:]:
            writer.append(row)
        raw = [json.loads(line) for line in writer.path.read_text().splitlines()]
        last = [row for row in raw if row["kind"] == "epoch"][-1]
        return writer.path, {"dfa": last["reference"]["median"][-1] * factor}

    return write


CASES = {
    "published": published,
    "mean over 64": written(ProbeSpec(reduction="mean", batch=64), 64),
    "not stated": written(ProbeSpec(reduction=None), 128),
    "ours": written(ProbeSpec(), 1),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """A file, and ‖g_L‖ by rule at the last epoch, per sample, computed from the raw JSON."""
    path, wanted = CASES[request.param](tmp_path)
    return path, load_logs([path]).logs, wanted


def digits(n):
    return 0.5 * 10 ** (1 - n)


def column(lines, name):
    """Cells of one column of a text table, header apart."""
    at = re.split(r"\s{2,}", lines[0]).index(name)
    return [re.split(r"\s{2,}", line)[at] for line in lines[2:]]


def test_show(case):
    path, logs, wanted = case
    text = CliRunner().invoke(app, ["show", str(path), "-v"]).stdout
    for log in logs:
        block = text.split(f"seed {log.spec.seed}\n{log.name}")[1].split("\n\n")[2].splitlines()
        cells = column(block, f"‖g_l‖ ({UNIT})")
        assert float(cells[-1].split()[LAST]) == pytest.approx(wanted[log.spec.rule], rel=digits(2))


def test_the_summary_after_training(case):
    _, logs, wanted = case
    text = summary_text(logs)
    assert text.endswith(f"‖g_L‖ {UNIT}")
    lines = text.splitlines()[:-1]
    for rule, cell in zip(column(lines, "method"), column(lines, "‖g_L‖"), strict=True):
        assert float(cell) == pytest.approx(wanted[rule], rel=digits(2))


def test_a_notebook(case):
    _, logs, wanted = case
    for log in logs:
        (table,) = Page(log._repr_html_()).tables
        at = table[0].index(f"‖g_l‖ ({UNIT})")
        assert float(table[-1][at].split()[LAST]) == pytest.approx(wanted[log.spec.rule], rel=digits(3))


def test_the_audit(case):
    _, logs, wanted = case
    judged = audit(logs, protocol="published")
    table = runs_table(judged)
    at = table.columns.index("‖g‖ per sample")
    assert len(table.rows) == len(logs)
    for row in table.rows:
        value, state = row[at].split()
        assert state == f"(g_{LAST})"
        assert float(value) == pytest.approx(wanted[row[0]], rel=digits(3))
    for cell in judged.claims:
        (entry,) = [check for check in cell.to_dict()["checks"] if check["name"] == "reference"]
        assert entry["unit"] == UNIT
        assert entry["value"] == pytest.approx(wanted[cell.cell.spec.rule], rel=1e-12)
        layers = per_layer_table(cell)
        norm = layers.rows[LAST][layers.columns.index("‖g‖")]
        assert float(norm) == pytest.approx(wanted[cell.cell.spec.rule], rel=digits(3))


def test_the_report(case):
    _, logs, wanted = case
    rules = {log.name: log.spec.rule for log in logs}
    shown = Page(render_report(logs, protocol="published")).data["runs"]
    assert len(shown) == len(logs)
    for one in shown:
        assert one["values"]["reference"][LAST][-1] == pytest.approx(wanted[rules[one["log"]]], rel=digits(5))


def test_the_figures(case):
    _, logs, wanted = case
    hero = {p.series: p.y for p in hero_table(logs).of("C", kind="point") if p.x == LAST}
    assert hero == pytest.approx(wanted, rel=1e-12)
    table = snapshot_table(logs)
    panel = next(panel.key for panel in table.panels if "‖g_L‖" in panel.y_label and not panel.empty)
    final = max(p.x for p in table.of(panel, kind="point"))
    ends = {p.series: p.y for p in table.of(panel, kind="point") if p.x == final}
    assert ends == pytest.approx(wanted, rel=1e-12)


def test_the_sinks(case):
    _, logs, wanted = case
    for log in logs:
        numbers = scalars(log.last, log.units)
        assert numbers[f"reference/state_{LAST}"] == pytest.approx(wanted[log.spec.rule], rel=1e-12)


def test_the_way_back_into_the_published_layout(case):
    _, logs, _ = case
    for log in logs:
        norm = log.last.reference.median[2] * log.units.factor
        assert penalty_layout(log)["log"][-1]["g_2_norm"] * 128 == pytest.approx(norm, rel=1e-12)
