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
from cases.faults import descendants, record_equal, wait_for
from cases.sweeps import contents, environment

from creditscope.execution.folder import hold
from creditscope.execution.plan import PLAN_FILE

# Three shapes, each dealt out to two processes: some parts wait while others train. Another calibration would choose
# one process and two threads, which sums in another order; a part that waited would be dealt out once more.
TRAIN = """
import sys
import torch
from cases.fleets import features, spec
import signal
import creditscope as cs
from creditscope.engine import loop
from creditscope.execution import local
from creditscope.signals import stop_once

stop_once(signal.SIGTERM, signal.SIGHUP)
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
        with (out / ".lock").open() as file:
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


TRIALS = [0, *(pytest.param(trial, marks=pytest.mark.slow) for trial in range(1, 20))]


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
    since = time.monotonic()
    process.communicate(timeout=60)
    let_go(tmp_path)
    done = subprocess.run(
        command(tmp_path, "1", "resume"), capture_output=True, text=True, timeout=120, check=False, env=settings()
    )
    assert done.returncode == 0, done.stderr
    record_equal("SIGKILL of several processes, then --resume", wanted, since, contents(tmp_path))
    assert not (tmp_path / PLAN_FILE).exists()


def a_fleet_is_at_work(out):
    return any(log.count('"kind": "epoch"') > 1 and '"end"' not in log for log in logs_of(out))


def logs_of(out):
    return [path.read_text() for path in out.glob("*.jsonl")]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)], ids=lambda number: number.name
)
def test_a_signal_to_every_process_of_a_job_saves_checkpoints(tmp_path, undisturbed, number):
    """As a cluster or a service manager ends a job, and as a terminal does that closes."""
    wanted, _ = undisturbed
    process = start(tmp_path)
    wait_for(lambda: a_fleet_is_at_work(tmp_path))
    since = time.monotonic()
    for pid in [*descendants(process.pid), process.pid]:
        os.kill(pid, number)
    process.communicate(timeout=60)
    let_go(tmp_path)
    for path in tmp_path.glob("*.jsonl"):
        assert path.read_text().count('"kind": "epoch"') < 2 or path.with_suffix(".safetensors").exists()
    assert not list(tmp_path.glob(".creditscope-*"))
    done = subprocess.run(
        command(tmp_path, "1", "resume"), capture_output=True, text=True, timeout=120, check=False, env=settings()
    )
    assert done.returncode == 0, done.stderr
    record_equal(f"{number.name} to every process of a job", wanted, since, contents(tmp_path))


def test_a_worker_that_was_stopped_does_not_keep_the_training(tmp_path):
    process = start(tmp_path)
    wait_for(lambda: a_fleet_is_at_work(tmp_path))
    (victim, *_) = descendants(process.pid)
    os.kill(victim, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)  # thirty seconds is how long one that does not come back is waited for
    let_go(tmp_path)


def test_what_a_killed_training_left_goes_at_the_next_start(tmp_path):
    process = start(tmp_path)
    wait_for(lambda: list(tmp_path.glob(".creditscope-scratch-*")))
    for pid in [process.pid, *descendants(process.pid)]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    let_go(tmp_path)
    part, theirs = tmp_path / ".creditscope-abcd1234.part", tmp_path / ".notes.abcd1234"
    for path in (part, theirs):
        path.write_bytes(b"half")
    alive = (tmp_path / ".creditscope-alive123.part").open("wb")
    fcntl.flock(alive, fcntl.LOCK_SH)
    assert list(tmp_path.glob(".creditscope-scratch-*"))
    with hold(tmp_path):
        pass
    assert {path.name for path in tmp_path.glob(".*")} == {".lock", PLAN_FILE, theirs.name, Path(alive.name).name}
    alive.close()
