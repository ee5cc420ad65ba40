"""One process killed at any moment, a child of this one so that it begins at once: resumed, nothing differs."""

import os
import random
import signal
import time
import traceback

import pytest
import torch
from cases.faults import record_equal
from cases.fleets import features, spec
from cases.sweeps import contents

import creditscope as cs
from creditscope.engine import loop
from creditscope.engine.checkpoint import read_checkpoint

METHODS = {"stacked": ("bp", "fa", "dfa-rms"), "a rule with state": ("kp", "wm", "dkp")}


def train(path, folder, resume):
    loop.CHECKPOINT_SECONDS = 0.02
    runs = [spec(method, epochs=4, dtype="float32") for method in METHODS[path]]
    cs.train(runs, folder, data=features(), device="cpu", resume=resume)


def child(path, folder, resume):
    """Train in a child of this process; its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        train(path, folder, resume)
        code = 0
    except BaseException:  # a child must not go on with the tests of its parent
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """For each path its folder, and the seconds that it took."""
    known = {}

    def made(path):
        if path not in known:
            for _ in range(2):  # the second is as fast as those that follow
                folder = tmp_path_factory.mktemp("undisturbed") / "runs"
                since = time.monotonic()
                finish(child(path, folder, False))
                known[path] = (folder, time.monotonic() - since)
        return known[path]

    return made


@pytest.mark.parametrize("path", METHODS)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_9_at_any_moment_of_one_process(tmp_path, undisturbed, path, kills):
    wanted, seconds = undisturbed(path)
    draw = random.Random(kills)
    for trial in range(kills):
        folder = tmp_path / str(trial) / "runs"
        folder.parent.mkdir()
        victim = child(path, folder, False)
        time.sleep(seconds * (trial + draw.random()) / kills)
        os.kill(victim, signal.SIGKILL)
        since = time.monotonic()
        os.waitpid(victim, 0)
        finish(child(path, folder, True))
        record_equal(f"SIGKILL of one process: {path}", contents(wanted), since, contents(folder))
        for file in wanted.glob("*.safetensors"):
            ours, theirs = read_checkpoint(folder / file.name), read_checkpoint(file)
            assert ours[1]["epoch"] == theirs[1]["epoch"]
            assert all(torch.equal(tensor, theirs[0][name]) for name, tensor in ours[0].items())
