"""Every command of the README is run, its example too; the pictures it shows exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from creditscope.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONSOLE = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]
BIN = Path(sys.executable).parent


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


def test_the_readme_opens_with_its_two_commands():
    assert [line for line in CONSOLE if line.startswith("make ")] == ["make demo", "make test"]
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / picture).is_file(), picture


def test_make_knows_every_target_the_documents_name():
    for target in ("help", "demo", "test", "test-all", "check", "bench", "docs", "clean"):
        run(["make", "--dry-run", target], ROOT)


def test_make_demo(tmp_path):
    """The real thing, all of it: about a minute on two idle cores."""
    printed = run(["make", "demo", f"DEMO={tmp_path / 'demo'}"], ROOT)
    table = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert table["bp"].endswith("trustworthy")
    assert table["dfa-rms"].endswith("walked back")
    for check in ("scale", "reference", "depth", "direction"):
        assert check in printed
    assert (tmp_path / "demo" / "report.html").is_file()


def test_the_other_commands_in_order(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command in (line for line in CONSOLE if line.startswith("creditscope ")):
        words = shlex.split(command)
        run([str(BIN / words[0]), *words[1:]], tmp_path)
    assert (tmp_path / "hero.pdf").is_file()
    assert (tmp_path / "report.html").is_file()


def test_the_library_example(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    printed = run([sys.executable, "-c", example], tmp_path)
    assert "dfa-rms" in printed
    assert "dfa-rms is walked back" in printed
    assert "bp is trustworthy" in printed


@pytest.mark.parametrize(
    "verb", sorted(command.name or command.callback.__name__ for command in app.registered_commands)
)
def test_every_verb_that_the_readme_names_has_help(verb):
    assert f"`{verb}" in README
    assert "Usage" in run([str(BIN / "creditscope"), verb, "--help"], ROOT)
