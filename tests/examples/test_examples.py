"""Every example runs as it is, and says what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMISES = {
    "01_train_and_audit.py": [r"^Protocol standard", r"^dfa-rms: (walked back|incomplete)$", r"^bp: \w+"],
    "02_audit_your_model.py": [
        r"^my-fa \(seeds 0, 1, 2 and 3\): (trustworthy|incomplete)",
        r"direction passes",
        r"my-fa@readout",
        r"^bp .*: (trustworthy|incomplete)",
    ],
    "03_watch_a_loop.py": [
        r"^alert: epoch \d+: \w+ fires",
        r"^ended as (stopped|diverged)$",
        r"^verdict: walked back$",
    ],
    "04_check_locality.py": [
        r"^careful: local: ",
        r"^leaky: leak: .* in blocks\.0 follows the weights of blocks\.1",
        r"^backprop: leak: ",
    ],
    "05_custom_rule.py": [
        r"^my-fa",
        r"direction undecided, exact: one seed cannot tell",
        r"block 1:\s+\+0",
        r"block 2\s+exact\s+by\s+construction",
    ],
}


def test_every_example_is_known_and_short():
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert [script.name for script in scripts] == sorted(PROMISES)
    assert all(len(script.read_text().splitlines()) < 60 for script in scripts)


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_an_example_runs_and_keeps_its_promise(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for promise in PROMISES[name]:
        assert re.search(promise, done.stdout, re.MULTILINE), f"{promise}\n{done.stdout}"
    assert list(tmp_path.iterdir()) == []
