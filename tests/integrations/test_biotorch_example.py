"""The example for BioTorch runs as it is, and says what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers
SCRIPT = Path(__file__).parents[2] / "examples" / "extras" / "audit_biotorch.py"


def test_the_example_runs_and_keeps_its_promise(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for method in ("fa", "dfa"):
        assert re.search(rf"^{method} \(seeds 0 and 1\): (trustworthy|walked back|incomplete)$", done.stdout, re.M)
        assert re.search(rf"^{method}@frozen", done.stdout, re.M)
    assert "unmatched" not in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert len(SCRIPT.read_text().splitlines()) <= 60
