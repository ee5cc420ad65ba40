"""The fuzzer runs, finds a planted bug, and keeps what it found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers
TOOL = Path(__file__).parents[2] / "tools" / "fuzz.py"


def fuzz(*words):
    command = [sys.executable, TOOL, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)


def test_it_finds_what_is_there(tmp_path):
    done = fuzz("planted", "--seconds", 30, "--crashers", tmp_path)
    assert done.returncode == 1
    (found,) = (tmp_path / "planted").iterdir()
    assert found.read_bytes().startswith(b"F")


def test_it_finds_nothing_in_a_loader(tmp_path):
    done = fuzz("idx", "--seconds", 2, "--crashers", tmp_path)
    assert done.returncode == 0, done.stdout
    assert "idx: " in done.stdout
    assert "nothing found" in done.stdout
    assert list(tmp_path.iterdir()) == []
