"""``creditscope ls``: one line a run; what cannot be read is named on stderr."""

import json

import pytest
from cases import specs as cases
from typer.testing import CliRunner

from creditscope.cli import app, display
from creditscope.errors import BadInput
from creditscope.records import EndRow, LogWriter


@pytest.fixture
def folder(tmp_path):
    for method, seed, end in (("bp", 1, "finished"), ("dfa-rms+pen0.01", 2, "diverged"), ("fa@frozen", 3, None)):
        header = cases.header(method, seed=seed)
        writer = LogWriter(tmp_path / f"{header.spec.run_id}.jsonl")
        writer.create(header)
        for number in range(3):
            writer.append(cases.epoch(number, accuracy=0.25 * number))
        if end:
            writer.append(EndRow(status=end, epoch=2))
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, ["ls", *map(str, arguments)])


def test_a_line_a_run(folder):
    result = call(folder)
    assert result.exit_code == 0
    found = {line.split()[0]: line for line in result.stdout.splitlines()}
    for method, seed, status in (
        ("bp", "1", "finished"),
        ("dfa-rms+pen0.01", "2", "diverged"),
        ("fa@frozen", "3", "unfinished"),
    ):
        words = found[method].split()
        assert seed in words
        assert "2/3" in words
        assert "0.500" in words
        assert status in words
    assert result.stderr == ""


def test_lines_are_not_wrapped_for_another_program(folder):
    """A header, a rule and one line a run, whatever the width of the terminal."""
    for line in call(folder).stdout.splitlines()[2:]:
        assert ".jsonl" in line


def test_a_file_that_is_no_log_is_named(folder):
    (folder / "junk.jsonl").write_text("junk\n")
    result = call(folder)
    assert result.exit_code == 0
    assert "junk.jsonl" in result.stderr
    assert "junk.jsonl" not in result.stdout


def test_nothing_there(tmp_path):
    result = call(tmp_path)
    assert isinstance(result.exception, BadInput)
    assert "no run log" in str(result.exception) or "nothing" in str(result.exception)


def test_a_folder_that_is_not_there(tmp_path):
    assert isinstance(call(tmp_path / "nowhere").exception, BadInput)


def test_on_a_narrow_terminal_a_file_name_stands_whole_on_its_own_line(folder, monkeypatch):
    monkeypatch.setattr(display, "terminal_columns", lambda: 60)
    lines = call(folder).stdout.splitlines()
    names = sorted(path.name for path in folder.iterdir())
    assert sorted(line.strip() for line in lines if line.startswith("  ")) == names


def test_json(folder):
    found = json.loads(call(folder, "--format", "json").stdout)
    assert [(run["method"], run["epoch"], run["accuracy"], run["status"]) for run in found["runs"]] == [
        ("bp", 2, 0.5, "finished"),
        ("dfa-rms+pen0.01", 2, 0.5, "diverged"),
        ("fa@frozen", 2, 0.5, "unfinished"),
    ]
    assert found["skipped"] == []


@pytest.mark.parametrize(
    ("options", "methods"),
    [
        (("--methods", "fa@frozen,bp"), {"bp", "fa@frozen"}),
        (("--methods", "dfa-rms+pen1e-2"), {"dfa-rms+pen0.01"}),
        (("--where", "seed=1,2"), {"bp", "dfa-rms+pen0.01"}),
        (("--where", "penalty=0.01,credit_norm=rms"), {"dfa-rms+pen0.01"}),
        (("--where", "train_last=0", "--where", "epochs=3"), {"fa@frozen"}),
    ],
)
def test_runs_are_chosen(folder, options, methods):
    found = json.loads(call(folder, *options, "--format", "json").stdout)
    assert {run["method"] for run in found["runs"]} == methods


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--where", "epoch=3"), "--where: a run has no 'epoch'; did you mean 'epochs'"),
        (("--where", "optimiser.rate=3"), "--where: optimiser has no 'rate'"),
        (("--where", "probe=3"), "--where: probe has several parts; write probe.n=…"),
        (("--where", "3"), "--where wants key=value,…, got '3'"),
        (("--where", "epochs=7"), "--where: no run here has epochs=7; epochs is 3"),
        (("--methods", "fa@frosen"), "--methods: no run here is 'fa@frosen'; did you mean 'fa@frozen'"),
        (("--methods", "bp", "--where", "seed=2"), "none of the 3 runs is all of seed=2 and methods bp"),
        (("--methods", ","), "--methods wants names separated by commas"),
    ],
)
def test_a_choice_that_leaves_nothing_says_what_there_is(folder, options, message):
    assert message in call(folder, *options).exception.with_flags
