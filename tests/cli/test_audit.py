"""The audit verb: what it prints, where, and with which exit code."""

import json
import shutil
from pathlib import Path

import pytest
import typer
from protocol import cases
from typer.testing import CliRunner

from creditscope.cli.audit import audit
from creditscope.errors import BadInput
from creditscope.records import LogWriter

GOLDEN = Path(__file__).parents[1] / "golden" / "published"
APP = typer.Typer()
APP.command()(audit)


def call(*arguments):
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


@pytest.fixture
def runs(tmp_path):
    for log in cases.healthy("dfa"):
        writer = LogWriter(tmp_path / log.name)
        writer.create(log.header)
        for row in list(log.rows())[1:]:
            writer.append(row)
    return tmp_path


def test_a_table_by_default(runs):
    result = call(runs)
    assert result.exit_code == 0
    assert "trustworthy" in result.stdout
    assert result.stderr == ""


def test_json_is_the_documented_shape():
    result = call(GOLDEN, "--protocol", "published", "--baseline", "0.349", "--format", "json")
    audited = json.loads(result.stdout)
    assert audited["protocol"] == "published"
    assert {cell["method"]: cell["verdict"] for cell in audited["cells"]}["dfa"] == "walked back"


@pytest.mark.parametrize(("form", "mark"), [("md", "| method |"), ("latex", r"\toprule")])
def test_markdown_and_latex(form, mark):
    assert mark in call(GOLDEN, "--protocol", "published", "--format", form).stdout


def test_sections_on_request(runs):
    text = call(runs, "--decisions", "--sensitivity").stdout
    assert "What each way of judging says" in text
    assert "Thresholds that change nothing" in text
    assert "Over time" not in text
    assert "Over time" in call(runs, "--timeline").stdout


def test_a_glance_by_default_and_the_rest_with_v(runs):
    brief, full = call(GOLDEN, "--protocol", "published").stdout, call(GOLDEN, "--protocol", "published", "-v").stdout
    assert len(brief.splitlines()) < len(full.splitlines()) / 2
    assert "What fires or is open" in brief
    assert all("passes, proxy:" in line for line in brief.splitlines() if "passes" in line)
    assert {"Why", "Runs", "Over time"} <= set(full.splitlines())
    assert brief.splitlines()[-1] == full.splitlines()[-1]


def test_the_last_line_counts_the_verdicts():
    result = call(GOLDEN, "--protocol", "published")
    cells = json.loads(call(GOLDEN, "--protocol", "published", "--format", "json").stdout)["cells"]
    kinds = [cell["verdict"] for cell in cells]
    wanted = " · ".join(f"{kinds.count(kind)} {kind}" for kind in ("trustworthy", "walked back", "incomplete"))
    assert result.stdout.splitlines()[-1] == wanted


def test_choosing_methods_changes_no_verdict(runs):
    """Its frozen twin and the positive control are no longer shown, and are still what it is compared with."""
    whole = json.loads(call(runs, "--format", "json").stdout)
    alone = json.loads(call(runs, "--methods", "dfa", "--format", "json").stdout)
    judged = {cell["method"]: cell for cell in whole["cells"]}
    (claim,) = [cell for cell in alone["cells"] if cell["verdict"] is not None]
    assert claim == judged["dfa"]
    assert alone["chosen"] == {"by": "methods dfa", "of": sum(cell["verdict"] is not None for cell in whole["cells"])}
    assert "chosen" not in whole
    assert "chosen by methods dfa" in call(runs, "--methods", "dfa").stdout


def test_choosing_seeds_leaves_the_others_out(runs):
    (claim,) = [
        cell
        for cell in json.loads(call(runs, "--where", "seed=42,rule=dfa", "--format", "json").stdout)["cells"]
        if cell["verdict"] is not None
    ]
    assert claim["seeds"] == [42]


def test_fail_on_walkback(runs):
    assert call(runs, "--fail-on-walkback").exit_code == 0
    assert call(GOLDEN, "--protocol", "published", "--fail-on-walkback").exit_code == 1
    assert call(GOLDEN, "--protocol", "published").exit_code == 0


def test_fail_on_incomplete(runs):
    assert call(runs, "--fail-on-incomplete").exit_code == 0
    assert call(GOLDEN, "--protocol", "published", "--fail-on-incomplete").exit_code == 1
    for path in runs.glob("*@*"):
        path.unlink()
    assert call(runs, "--fail-on-incomplete").exit_code == 3
    assert call(runs, "--fail-on-walkback").exit_code == 0


def test_a_skipped_file_is_named_on_stderr_and_fails_only_when_asked(runs):
    (runs / "junk.json").write_text("junk")
    result = call(runs)
    assert result.exit_code == 0
    assert "junk.json: not a log" in result.stderr
    assert "junk.json" not in result.stdout
    assert call(runs, "--fail-on-walkback").exit_code == 2


def test_thresholds_and_assumptions():
    audited = json.loads(
        call(
            GOLDEN,
            "--set",
            "scale=6000,depth=1",
            "--set",
            "movement=0.1",
            "--assume",
            "blocks=4,h0=9",
            "--format",
            "json",
        ).stdout
    )
    assert audited["overrides"] == {"scale": 6000, "depth": 1, "movement": 0.1}
    assert audited["assumed"]["h0"] == 9


def test_a_baseline_in_another_folder(runs, tmp_path_factory):
    other = tmp_path_factory.mktemp("frozen")
    for path in runs.glob("*@*"):
        shutil.move(path, other)
    assert "not compared" in call(runs).stdout
    assert "trustworthy" in call(runs, "--baseline", other).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.json"], "nothing to judge"),
        ([GOLDEN, "--set", "scale"], "--set wants NAME=NUMBER, got 'scale'"),
        ([GOLDEN, "--set", "scale=big"], "--set wants NAME=NUMBER"),
        ([GOLDEN, "--assume", "=4"], "--assume wants NAME=NUMBER"),
        ([GOLDEN, "--baseline", "34.9"], "fraction in [0, 1]"),
        ([GOLDEN, "--baseline", "nowhere"], "--baseline holds no readable log"),
    ],
)
def test_bad_use_raises_one_line_for_the_front_door(arguments, message):
    result = call(*arguments)
    assert isinstance(result.exception, BadInput)
    assert message in result.exception.with_flags


def test_an_unknown_protocol_or_format_is_bad_use():
    assert call(GOLDEN, "--protocol", "harsh").exit_code == 2
    assert call(GOLDEN, "--format", "xml").exit_code == 2
