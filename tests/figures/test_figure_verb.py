"""``creditscope figure`` from the command line."""

import csv
import json
from pathlib import Path

import pytest
import typer
from figures.cases import audit_suite, penalty_suite
from typer.testing import CliRunner

from creditscope.cli.figure import figure
from creditscope.errors import BadInput
from creditscope.records import LogWriter, RunLog

app = typer.Typer()
app.command()(figure)


def write(logs: list[RunLog], folder: Path) -> None:
    folder.mkdir()
    for log in logs:
        writer = LogWriter(folder / log.name)
        rows = list(log.rows())
        writer.create(rows[0])
        for row in rows[1:]:
            writer.append(row)


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_folder_of_logs_becomes_a_picture_and_its_data(tmp_path):
    write(audit_suite(3), tmp_path / "runs")
    result = invoke("hero", tmp_path / "runs", "--out", tmp_path / "hero.pdf", "--width", "one", "--index", "acts")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "hero.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "hero.csv").read_text().startswith("panel,series")
    assert result.stderr == ""
    assert "hero.pdf" in result.stdout
    assert "hero.csv" in result.stdout


def test_missing_runs_and_skipped_files_go_to_stderr_and_the_rest_is_drawn(tmp_path):
    write([log for log in penalty_suite() if log.spec.method == "dfa-rms+pen0.01"], tmp_path / "runs")
    (tmp_path / "runs" / "junk.json").write_text("{")
    result = invoke("penalty-sweep", tmp_path / "runs", "--out", tmp_path / "x.png")
    assert result.exit_code == 0
    assert "skipped" in result.stderr
    assert "junk.json" in result.stderr
    assert "penalty-sweep: no bp run in these logs" in result.stderr


def test_published_layouts_are_read(tmp_path):
    rows = [{"epoch": e, "h_L_norm": 9.0 + e, "g_2_norm": 1e-3, "acc_eval": 0.1 + 0.1 * e} for e in range(4)]
    path = tmp_path / "dfa_pen_lam0.01_s42.json"
    path.write_text(json.dumps({"log": rows, "final_test_acc": 0.4}))
    result = invoke("penalty-sweep", path, "--out", tmp_path / "x.svg")
    assert result.exit_code == 0, result.output
    data = (tmp_path / "x.csv").read_text()
    assert "λ = 0.01" in data
    assert path.name in data


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heroo", "runs", "--out", "x.pdf"), "did you mean 'hero'"),
        (("hero", "runs", "--out", "x.doc"), "--out must end in"),
        (("hero", "runs", "--out", "x.pdf", "--width", "4"), "--width wants"),
        (("hero", "nowhere", "--out", "x.pdf"), "nothing to draw from 0 logs"),
    ],
)
def test_bad_use_is_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert isinstance(result.exception, BadInput)
    assert message in result.exception.with_flags
    assert "\n" not in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_committed_hero_is_what_its_command_draws(tmp_path):
    """The command under the picture, on the committed logs: four methods of one experiment out of all of them."""
    root = Path(__file__).parents[2]
    command = "--methods bp,fa-block,dfa-rms,dfa --where epochs=100,terminal_ln=true"
    result = invoke("hero", root / "results" / "cifar10-h200", *command.split(), "--out", tmp_path / "hero.svg")
    assert result.exit_code == 0, result.output
    for suffix in (".svg", ".csv"):
        assert (tmp_path / f"hero{suffix}").read_bytes() == (root / "docs/figures" / f"hero{suffix}").read_bytes()


def test_json_holds_every_value_and_the_picture_is_written(tmp_path):
    write(audit_suite(3), tmp_path / "runs")
    out = tmp_path / "hero.png"
    result = invoke("hero", tmp_path / "runs", "--out", out, "--format", "json")
    found = json.loads(result.stdout)
    assert found["out"] == str(out)
    assert out.stat().st_size > 10_000
    rows = list(csv.DictReader(out.with_suffix(".csv").read_text().splitlines()))
    assert [point["y"] for point in found["points"]] == [float(row["y"]) if row["y"] else None for row in rows]


@pytest.mark.parametrize("height", ["1", "30"])
def test_a_height_that_no_page_has_is_refused(tmp_path, height):
    result = invoke("hero", tmp_path, "--out", tmp_path / "x.png", "--height", height)
    assert "--height wants 1.5 to 20 inches" in result.exception.with_flags
