"""``creditscope show``: one run, in full."""

import json

import pytest
from cases import specs as cases
from typer.testing import CliRunner

from creditscope.cli import app
from creditscope.errors import BadInput
from creditscope.records import EndRow, HeaderRow, LogWriter


@pytest.fixture
def log(tmp_path):
    header = cases.header("dfa-rms+pen0.01", seed=7)
    header = HeaderRow(**(header.model_dump() | {"provenance": {"torch": "9.9"}}))
    path = tmp_path / "run.jsonl"
    writer = LogWriter(path)
    writer.create(header)
    for number in range(40):
        writer.append(cases.epoch(number, accuracy=number / 100, hidden=float(number + 1)))
    writer.append(cases.probe(39))
    writer.append(EndRow(status="stopped", epoch=39, reason="lost: growth"))
    return path


def call(*arguments):
    return CliRunner().invoke(app, ["show", *map(str, arguments)])


def test_what_the_run_is_and_how_it_ended(log):
    text = call(log).stdout
    for part in ("dfa-rms+pen0.01", "seed 7", "resmlp", "9.9", "stopped: lost: growth", "1 expensive probe"):
        assert part in text


@pytest.mark.parametrize(("asked", "most"), [(1, 2), (5, 6), (100, 40)])
def test_epochs_are_spread_evenly_and_the_last_is_shown(log, asked, most):
    lines = [line.split() for line in call(log, "--epochs", asked).stdout.splitlines()]
    shown = [int(words[0]) for words in lines if words and words[0].isdigit() and len(words) > 2]
    assert shown[-1] == 39
    assert shown == sorted(shown)
    assert len(shown) <= most
    assert "0.390" in call(log, "--epochs", asked).stdout


def test_bad_use(log, tmp_path):
    assert call(log, "--epochs", "0").exit_code == 2
    (tmp_path / "junk.jsonl").write_text("junk\n")
    result = call(tmp_path / "junk.jsonl")
    assert isinstance(result.exception, BadInput)
    assert "junk.jsonl" in str(result.exception)


def test_a_torn_log_is_shown_and_said(log):
    log.write_bytes(log.read_bytes()[:-10])
    result = call(log)
    assert result.exit_code == 0
    assert "torn" in result.stderr
    assert "unfinished" in result.stdout


def test_settings_are_named_as_where_takes_them_never_as_python(log):
    text = call(log).stdout
    assert "{'" not in text
    found = dict(line.split(maxsplit=1) for line in text.splitlines() if len(line.split()) > 1)
    assert found["optimiser.lr"] == "0.001"
    assert call(log, "--where", "optimiser.lr=1e-3,depth=4").exit_code == 0


def test_several_runs_are_a_line_each_unless_asked(log, tmp_path):
    other = cases.header("bp", seed=8)
    LogWriter(tmp_path / "other.jsonl").create(other)
    text = call(tmp_path).stdout
    assert len(text.splitlines()) < 8
    assert "2 runs; name one file" in text
    assert "field" in call(tmp_path, "-v").stdout
    assert "seed 8" in call(tmp_path, "--methods", "bp").stdout


def test_json(log):
    (run,) = json.loads(call(log, "--format", "json", "--epochs", 3).stdout)["runs"]
    assert run["spec"]["penalty"] == 0.01
    assert run["epochs"][-1]["accuracy"] == [0.39]
    assert run["status"] == "stopped"
