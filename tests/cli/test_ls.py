"""``creditscope ls``: one line a run; what cannot be read is named on stderr."""

import pytest
from cases import specs as cases
from typer.testing import CliRunner

from creditscope.cli import app
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
