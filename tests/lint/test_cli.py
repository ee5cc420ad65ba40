import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from creditscope.cli.lint import lint
from creditscope.lint import PITFALLS

WRONG = "def norms(g):\n    return g.norm(-1)\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "right.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    app = typer.Typer()
    app.command()(lint)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_findings_are_printed_with_their_fix_and_exit_1(run):
    result = run("wrong.py", "right.py")
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()
    assert first.startswith("wrong.py:2:12 CS001 ")
    assert second == "    fix: name the axis: `dim=-1`"
    assert result.stderr == "1 finding in 2 files\n"


def test_no_findings_exit_0(run):
    result = run("right.py")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 findings in 1 file\n")


def test_skipped_files_are_named_and_the_rest_decides(run):
    result = run("broken.py", "right.py")
    assert result.exit_code == 0
    assert "skipped broken.py: not Python: " in result.stderr
    assert run("broken.py", "wrong.py").exit_code == 1


@pytest.mark.parametrize("arguments", [["broken.py"], ["missing.py"], ["broken.py", "--format", "json"]])
def test_nothing_linted_exit_2(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "skipped " in result.stderr


def test_json(run):
    result = run("wrong.py", "broken.py", "--format", "json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert [(found["file"], found["line"], found["column"], found["code"]) for found in data["findings"]] == [
        ("wrong.py", 2, 12, "CS001")
    ]
    assert [skipped["file"] for skipped in data["skipped"]] == ["broken.py"]
    assert data["linted"] == ["wrong.py"]


@pytest.mark.parametrize("code", PITFALLS)
def test_explain(run, code):
    result = run("--explain", code.lower())
    assert (result.exit_code, result.stdout) == (0, PITFALLS[code].explain() + "\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "creditscope lint: wanted files or folders to lint, got none; try `creditscope lint measure.py`\n"),
        (["--explain", "CS01"], "creditscope lint: wanted the code of a pitfall, got 'CS01'; did you mean "),
        (["right.py", "--format", "jsn"], "creditscope lint: wanted --format text or json, got 'jsn'; did you mean "),
    ],
)
def test_bad_use_is_one_line_and_exit_2(run, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_linting_never_imports_torch_nor_runs_the_file(tmp_path):
    path = tmp_path / "loud.py"
    path.write_text("import torch\nraise SystemExit('the file was run')\n")
    code = (
        "import sys; from creditscope.lint import lint_files; lint_files(sys.argv[1:]); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
