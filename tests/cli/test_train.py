"""``creditscope train`` as a user runs it: kill -9 and resume, every bad input, a full disk, a dry run."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from creditscope import cli
from creditscope.cli.train import parse_seeds, parse_settings
from creditscope.engine.fleet import Fleet
from creditscope.records import LogWriter, RunLog

TINY = (
    *("--data", "synthetic", "--device", "cpu", "--rules", "bp,dfa-rms,dfa-rms@frozen", "--seeds", "1,2"),
    *("--epochs", "4", "--set", "width=4", "--set", "depth=2", "--set", "batch=512", "--set", "probe.n=16"),
    *("--set", "probe.epochs=[2]", "--set", "probe.redraws=9", "--set", "probe.directions=2"),
)
STEPS = 8  # 4096 samples in batches of 512

# A process that kills itself, as kill -9 would, at one moment. Checkpoints after every epoch.
CHILD = """
import os, signal, sys
from creditscope.engine import checkpoint, fleet, loop
from creditscope.records.log import LogWriter

loop.CHECKPOINT_SECONDS = -1.0
moment, left = sys.argv.pop(1), int(sys.argv.pop(1))

def countdown():
    global left
    left -= 1
    return left == 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

step, append, write, save = fleet.Fleet._step, LogWriter.append, checkpoint.write_atomic, checkpoint.FleetState.save

def dying_step(self, *given):
    step(self, *given)
    if countdown():
        die()

def dying_append(self, row):
    append(self, row)
    if countdown():
        os.truncate(self.path, self.path.stat().st_size - 30)
        die()

def dying_write(path, data, **more):
    if countdown():
        die()
    write(path, data, **more)

def save_once(self, folder):
    if self.epoch < 2:
        save(self, folder)

if moment in ("step", "stale"):
    fleet.Fleet._step = dying_step
if moment == "stale":
    checkpoint.FleetState.save = save_once
if moment == "row":
    LogWriter.append = dying_append
if moment == "checkpoint":
    checkpoint.write_atomic = dying_write

from creditscope.cli import main
main()
"""


def rows(folder):
    """All logs of a folder without the clock."""
    logs = {}
    for path in sorted(folder.glob("*.jsonl")):
        read = [json.loads(line) for line in path.read_text().splitlines()]
        logs[path.name] = [{k: v for k, v in row.items() if not k.startswith("time_")} for row in read]
    return logs


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def python(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment, **options
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As in the processes that are killed: a bitwise resume needs it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(folder, arguments):
    done = CliRunner().invoke(cli.app, ["train", *arguments, "--out", str(folder)])
    assert (done.exit_code, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The logs of runs that nobody interrupted."""
    return rows(train(tmp_path_factory.mktemp("whole"), TINY))


@pytest.mark.parametrize(
    ("moment", "left", "epochs"),
    [
        pytest.param("step", STEPS // 2, 0, id="in the first epoch"),
        pytest.param("step", 2 * STEPS + 3, 2, id="in the third epoch"),
        pytest.param("stale", 2 * STEPS + 3, 2, id="rows past the checkpoint"),
        pytest.param("row", 6 * 3 - 2, 1, id="in the middle of a row"),
        pytest.param("checkpoint", 6 + 3, 2, id="between two checkpoints"),
    ],
)
def test_kill_9_then_resume_gives_the_log_of_an_uninterrupted_run(tmp_path, creditscope, whole, moment, left, epochs):
    out = tmp_path / "runs"
    killed = python("-c", CHILD, moment, str(left), "train", *TINY, "--out", str(out))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    logs = [RunLog.read(path) for path in sorted(out.glob("*.jsonl"))]
    assert logs[0].last.epoch >= epochs
    assert not any(log.end for log in logs)
    code, _, error = creditscope("train", *TINY, "--out", out)
    assert code == 2
    assert "pass --resume" in error
    assert creditscope("train", *TINY, "--out", out, "--resume")[0] == 0
    assert rows(out) == whole
    assert not [path for path in out.iterdir() if path.name.endswith(".previous")]


def test_a_stop_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path, creditscope, whole):
    """A cluster sends SIGTERM; it is taken as Ctrl-C is."""
    child = CHILD.replace("signal.SIGKILL", "signal.SIGTERM").replace("= -1.0", "= 1e9")
    stopped = python("-c", child, "step", str(STEPS + 3), "train", *TINY, "--out", str(tmp_path))
    assert stopped.returncode == 130
    assert stopped.stderr.strip() == "creditscope: stopped; what was logged is kept, and --resume goes on with it"
    assert len(list(tmp_path.glob("*.safetensors"))) == 6
    code, out, _ = creditscope("train", *TINY, "--out", tmp_path, "--resume")
    assert code == 0
    assert "6 logs in" in out
    assert rows(tmp_path) == whole


ONE = (*TINY, "--rules", "bp", "--seeds", "1", "--epochs", "1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("trained"), ONE)


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of a folder whose one run is finished."""
    return shutil.copytree(trained, tmp_path / "runs")


def test_a_finished_folder(finished, creditscope):
    before = files(finished)
    code, out, error = creditscope("train", *ONE, "--out", finished, "--resume")
    assert (code, error) == (0, "")
    assert "finished" in out
    assert files(finished) == before
    code, _, error = creditscope("train", *ONE, "--out", finished)
    assert code == 2
    assert error.startswith("creditscope: the output folder already holds 1 of these 1 runs")
    assert error.count("\n") == 1
    assert files(finished) == before


@pytest.fixture
def folder(tmp_path):
    """What a user may point at by mistake."""
    (tmp_path / "file").write_text("mine")
    binary = tmp_path / "truncated" / "cifar-10-batches-bin"
    binary.mkdir(parents=True)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        (binary / name).write_bytes(bytes(3073 * 10 - 1))
    (tmp_path / "half.npz").write_bytes(b"PK\x03\x04junk")
    np.savez(tmp_path / "part.npz", x_train=np.zeros((4, 2), np.float32))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rules", "dfa-rsm"], "did you mean 'dfa-rms'"),
        (["--rules", "bp,backprp"], "unknown rule 'backprp'"),
        (["--rules", "bp,,fa"], "method '' is not of the form"),
        (["--rules", "bp@last7"], "@last7: wanted 0 to 2 blocks"),
        (["--rules", "fa-rms"], "and fa sends none; drop -rms"),
        (["--rules", "dfa+pen-1"], "the penalty must be a positive number"),
        (["--preset", "dmeo"], "unknown preset 'dmeo'; did you mean 'demo'?"),
        (["--set", "lr=nan"], "--set lr=nan: lr: Input should be a finite number"),
        (["--set", "lr=0"], "greater than 0"),
        (["--set", "widht=3"], "--set widht: no such setting; did you mean 'width'"),
        (["--set", "width"], "--set width: wanted key=value, such as width=128"),
        (["--set", "=3"], "wanted key=value"),
        (["--set", "batch=9999"], "a batch of 9999 cannot be taken from 4096 training samples"),
        (["--set", "augment=crop4+flip"], "wants uint8 images"),
        (["--set", "model=vit-mini"], "vit-mini wants images"),
        (["--set", "view=cls"], "view 'cls' wants states of shape"),
        (["--seeds", "1,two"], "--seeds 1,two: wanted whole numbers separated by commas"),
        (["--seeds", ""], "wanted whole numbers"),
        (["--epochs", "-1"], "epochs: Input should be greater than or equal to 0"),
        (["--device", "tpu"], "--device tpu: wanted auto, cpu or cuda"),
        (["--monitor", "shout"], "--monitor shout: wanted alert or stop"),
        (["--data", "cifra10"], "no data set 'cifra10': did you mean 'cifar10'"),
        (["--data", "cifar10"], "cifar10 is not bundled: pass --data-dir or set"),
        (["--data", "cifar10", "--data-dir", "{folder}/nowhere"], "nowhere is not a folder"),
        (["--data", "cifar10", "--data-dir", "{folder}/file"], "is not a folder"),
        (["--data", "cifar10", "--data-dir", "{folder}"], "cifar10"),
        (["--data", "cifar10", "--data-dir", "{folder}/truncated"], "data_batch_1.bin"),
        (["--data", "{folder}/nowhere.npz"], "no such file"),
        (["--data", "{folder}/half.npz"], "not a readable .npz"),
        (["--data", "{folder}/part.npz"], "has no y_train"),
        (["--out", "{folder}/file/runs"], "--out runs: cannot be made (Not a directory)"),
        (["--out", "{folder}/file"], "--out file: cannot be made (File exists)"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(folder, finished, creditscope, monkeypatch, arguments, message):
    monkeypatch.delenv("CREDITSCOPE_DATA", raising=False)
    before = files(finished)
    given = [argument.format(folder=folder) for argument in arguments]
    code, out, error = creditscope("train", *TINY, "--out", finished, *given)
    assert code == 2
    assert message in error
    assert error.startswith("creditscope: ")
    assert error.count("\n") == 1
    assert out == ""
    assert files(finished) == before
    assert (folder / "file").read_text() == "mine"


def test_a_full_disk_is_one_line_and_earlier_rows_stay(finished, creditscope):
    """No file may grow beyond what the finished one needs: the next run's log does not fit."""
    before = files(finished)
    limit = 6_000
    more = (*TINY, "--rules", "bp", "--seeds", "2", "--epochs", "4")
    done = python(
        *("-m", "creditscope", "train", *more, "--out", str(finished)),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "File too large; free space or choose another --out, then pass --resume" in done.stderr
    after = files(finished)
    assert before.items() <= after.items()
    log = RunLog.read(next(path for path in finished.glob("bp-s2-*.jsonl")))
    assert log.problems == (), "no torn row"
    assert creditscope("train", *more, "--out", finished, "--resume")[0] == 0
    assert before.items() <= files(finished).items()
    assert RunLog.read(next(path for path in finished.glob("bp-s2-*.jsonl"))).finished


def test_a_disk_that_fills_while_a_row_is_written(finished, creditscope, monkeypatch):
    def full(self, row):
        raise OSError(28, "No space left on device")

    before = files(finished)
    monkeypatch.setattr(LogWriter, "append", full)
    code, _, error = creditscope("train", *TINY, "--rules", "fa", "--seeds", "2", "--out", finished)
    assert code == 2
    said = "creditscope: the output cannot be written: No space left on device; free space, or send it elsewhere\n"
    assert error == said
    assert before.items() <= files(finished).items()


@pytest.mark.parametrize("damage", ["junk", "half"])
def test_a_damaged_checkpoint_is_set_aside_and_recomputed(tmp_path, creditscope, monkeypatch, damage):
    arguments = (*TINY, "--rules", "bp", "--seeds", "1")

    def interrupt(self, epoch):
        if epoch == 2:
            raise KeyboardInterrupt
        begin_epoch(self, epoch)

    begin_epoch = Fleet.begin_epoch
    with monkeypatch.context() as patch:
        patch.setattr(Fleet, "begin_epoch", interrupt)
        assert creditscope("train", *arguments, "--out", tmp_path)[0] == 130
    path = next(iter(tmp_path.glob("*.safetensors")))
    path.write_bytes(b"junk" if damage == "junk" else path.read_bytes()[:-50])
    damaged = path.read_bytes()
    code, _, error = creditscope("train", *arguments, "--out", tmp_path, "--resume")
    assert code == 0
    assert error.startswith(f"{path.name}: not a readable checkpoint")
    assert error.endswith(f"kept as {path.name}.damaged, the fleet goes on from an earlier epoch\n")
    assert error.count("\n") == 1
    assert path.with_name(path.name + ".damaged").read_bytes() == damaged
    assert RunLog.read(path.with_suffix(".jsonl")).finished


def test_a_dry_run_writes_nothing(tmp_path, creditscope):
    out = tmp_path / "runs"
    code, text, _ = creditscope("train", *TINY, "--out", out, "--dry-run")
    assert code == 0
    assert "6 runs in 1 fleet" in text
    assert "dfa-rms@frozen" in text
    assert "nothing was trained" in text
    assert not out.exists()


@pytest.mark.parametrize("name", ["demo", "audit", "penalty", "snapshot", "vit"])
def test_every_preset_has_a_plan(creditscope, name):
    code, text, _ = creditscope("train", "--preset", name, "--data", "fashion-mini", "--dry-run")
    assert code == 0
    assert f"in {2 if name == 'snapshot' else 1} fleet" in text


def test_the_monitor_stops_a_lost_run(tmp_path, creditscope):
    arguments = ("--rules", "bp", "--seeds", "1", "--set", "lr=1e30", "--out", tmp_path, "--monitor", "stop")
    code, _, _ = creditscope("train", *TINY, *arguments)
    assert code == 0
    log = RunLog.read(next(iter(tmp_path.glob("*.jsonl"))))
    assert log.end.status in ("diverged", "stopped")
    assert log.end.epoch < 4


def test_seeds_and_settings():
    assert parse_seeds("42, 7,0") == [42, 7, 0]
    assert parse_settings(["width=3", "probe.epochs=[0,5]", "probe.epochs=[]", "model=a=b"]) == {
        "width": "3",
        "probe.epochs": [],
        "model": "a=b",
    }
