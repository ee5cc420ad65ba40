"""The report verb: what it writes, what it says, and that its page can be made again."""

import html
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from creditscope.cli.report import report
from creditscope.errors import BadInput, CannotWrite

GOLDEN = Path(__file__).parents[1] / "golden" / "published"
APP = typer.Typer()
APP.command()(report)


def call(*arguments):
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


def test_a_page_and_its_size(folder, tmp_path):
    out = tmp_path / "report.html"
    result = call(folder, "--out", out)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {out} ({out.stat().st_size / 1e6:.2f} MB)\n"
    assert result.stderr == ""


def test_the_command_on_the_page_makes_it_again(folder, tmp_path):
    out = tmp_path / "a page.html"
    call(folder, "--out", out, "--set", "scale=40", "--set", "depth=3", "--protocol", "published", "--baseline", "0.35")
    first = out.read_bytes()
    shown = re.search(r'<pre class="command"[^>]*><code>(.*?)</code>', first.decode(), re.DOTALL).group(1)
    words = shlex.split(html.unescape(shown))
    assert words[:2] == ["creditscope", "report"]
    out.unlink()
    assert call(*words[2:]).exit_code == 0
    assert out.read_bytes() == first


@pytest.mark.parametrize("suffix", [".md", ".tex"])
def test_tables(folder, tmp_path, suffix):
    out = tmp_path / f"tables{suffix}"
    assert call(folder, "--out", out).exit_code == 0
    assert "Reporting form: dfa-rms" in out.read_text(encoding="utf-8")


def test_a_baseline_folder_and_assumptions(tmp_path):
    out = tmp_path / "report.html"
    result = call(GOLDEN, "--out", out, "--protocol", "published", "--baseline", "0.349", "--assume", "blocks=4,h0=9")
    assert result.exit_code == 0, result.output
    assert "assumed: blocks=4, h0=9" in out.read_text(encoding="utf-8")


def test_logs_given_as_baseline_are_drawn_too(folder, tmp_path):
    out = tmp_path / "report.html"
    frozen, claims = tmp_path / "frozen", tmp_path / "claims"
    for path in folder.iterdir():
        target = frozen if "@frozen" in path.name else claims
        target.mkdir(exist_ok=True)
        (target / path.name).write_bytes(path.read_bytes())
    assert call(claims, "--baseline", frozen, "--out", out).exit_code == 0
    text = out.read_text(encoding="utf-8")
    assert all(path.name in text for path in folder.iterdir())


def test_a_skipped_file_is_named(folder, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nonsense")
    result = call(folder, bad, "--out", tmp_path / "report.html")
    assert result.exit_code == 0
    assert f"skipped {bad}: wanted a header row" in result.stderr
    assert "bad.jsonl" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_bad_use_is_an_error_of_ours(folder, tmp_path):
    assert isinstance(call(folder, "--out", tmp_path / "x.docx").exception, BadInput)
    assert isinstance(call(folder, "--out", tmp_path / "no" / "x.html").exception, CannotWrite)
    assert isinstance(call(tmp_path / "none", "--out", tmp_path / "x.html").exception, BadInput)
    assert isinstance(call(folder, "--out", tmp_path / "x.html", "--set", "scale").exception, BadInput)
