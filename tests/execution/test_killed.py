"""Several processes killed at any moment: after a resume the logs are those of a training that nobody disturbed."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases.faults import descendants, wait_for
from cases.sweeps import contents, environment

from creditscope.execution.plan import PLAN_FILE

# Three shapes, each dealt out to two processes: some parts wait while others train. Another calibration would choose
# one process and two threads, which sums in another order; a part that waited would be dealt out once more.
TRAIN = """
import sys
import torch
from cases.fleets import features, spec
import creditscope as cs
from creditscope.engine import loop
from creditscope.execution import local

loop.CHECKPOINT_SECONDS = 0.3
out, count, resume = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
local.process_count = lambda context, fleets: (count, None)
torch.set_num_threads(3 - count)
runs = [
    spec(method, width=width, dtype="float32", epochs=3)
    for width in (4, 6, 8) for method in ("bp", "fa", "dfa-rms", "dfa-rms@frozen")
]
cs.train(runs, out, data=features(), device="cpu", resume=resume)
"""


def command(out, *words):
    return [sys.executable, "-c", TRAIN, str(out), *words]


def settings():
    tests = str(Path(__file__).parent.parent)
    return environment() | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}


def start(out):
    process = subprocess.Popen(command(out, "2"), env=settings(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (out / PLAN_FILE).exists() or process.poll() is not None)
    return process


def let_go(out):
    """Wait until no process holds the folder: those that lost their parent save what they have."""

    def free():
        with (out / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            return True

    wait_for(free)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The logs, and how long they took from the plan on."""
    out = tmp_path_factory.mktemp("undisturbed")
    process = start(out)
    since = time.monotonic()
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return contents(out), time.monotonic() - since


TRIALS = [*range(3), *(pytest.param(trial, marks=pytest.mark.slow) for trial in range(3, 20))]


@pytest.mark.parametrize("trial", TRIALS)
def test_kill_9_at_any_moment_and_resume_gives_the_logs_of_an_undisturbed_training(tmp_path, undisturbed, trial):
    wanted, seconds = undisturbed
    draw = random.Random(trial)
    process = start(tmp_path)
    time.sleep(seconds * (7 * trial % 20 + draw.random()) / 20)  # each in a twentieth of its own
    victims = [process.pid, *(descendants(process.pid) if trial % 2 == 0 else ())]  # every process, or the first alone
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it was done already
            continue
    process.communicate(timeout=60)
    let_go(tmp_path)
    done = subprocess.run(
        command(tmp_path, "1", "resume"), capture_output=True, text=True, timeout=120, check=False, env=settings()
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path) == wanted
    assert not (tmp_path / PLAN_FILE).exists()
