"""Faults of one machine, each really done to a sweep in a process of its own: nothing is lost, one clear line each."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from cases.faults import hear_ctrl_c, record, wait_for
from cases.sweeps import contents, environment, sweep_command, sweep_here, write_tiny

from creditscope.records import RunLog

HERE = ("--fleet-size", 2, "--device", "cpu")
EPOCHS = 8


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("spec"), EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    sweep_here(spec, *HERE, "--out", folder)
    return folder


@pytest.fixture
def begun(undisturbed, tmp_path):
    """A copy of the finished sweep, to be damaged."""
    folder = tmp_path / "runs"
    shutil.copytree(undisturbed, folder)
    return folder


def start(*words, before=hear_ctrl_c, more=None):
    return subprocess.Popen(
        sweep_command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment() | (more or {}), preexec_fn=before,
    )  # fmt: skip


def last_line(text):
    lines = text.splitlines()
    assert "Traceback" not in text
    return lines[-1]


def resume(spec, folder, fault, undisturbed, since):
    done = sweep_here(spec, *HERE, "--resume", "--out", folder)
    record(fault, folder, undisturbed, since)
    return done


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_sweep_that_is_stopped_goes_on(spec, undisturbed, tmp_path, number):
    process = start(spec, *HERE, "--out", tmp_path)
    wait_for(lambda: list(tmp_path.glob("*.jsonl")))
    process.send_signal(number)
    since = time.monotonic()
    _, error = process.communicate(timeout=20)
    if number != signal.SIGKILL:
        assert process.returncode == 130, error
        assert "stopped; what was logged is kept, and --resume goes on with it" in last_line(error)
    resume(spec, tmp_path, f"{number.name} here, then --resume", undisturbed, since)


def test_a_full_disk(spec, undisturbed, tmp_path):
    largest = max(path.stat().st_size for path in undisturbed.glob("*.jsonl"))

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest * 2 // 3, largest * 2 // 3))

    process = start(spec, *HERE, "--out", tmp_path, before=full)
    _, error = process.communicate(timeout=60)
    since = time.monotonic()
    assert process.returncode == 2
    assert "cannot" in last_line(error)
    assert "kept" in last_line(error)
    kept = contents(tmp_path)
    assert any(len(rows) > 2 for rows in kept.values())
    wanted = contents(undisturbed)
    assert all(rows == wanted[name][: len(rows)] for name, rows in kept.items())
    resume(spec, tmp_path, "disk full (file size limit)", undisturbed, since)


SMALL_DISK = """
mount -t tmpfs -o size=$1 none $2 && shift
out=$1 copy=$2; shift 2
"$@" --out $out; echo "exit $?"
mount -o remount,size=50m $out
"$@" --out $out --resume 2>/dev/null || echo "no resume"
cp $out/* $copy
mount -o remount,ro $out
"$@" --out $out --resume; echo "exit $?"
"""


@pytest.mark.slow
def test_a_disk_that_is_really_full_and_then_read_only(spec, undisturbed, tmp_path):
    """A small file system of its own: needs Linux that lets a user make namespaces, as most do."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    for folder in (disk, copy):
        folder.mkdir()
    room = sum(path.stat().st_size for path in undisturbed.glob("*.*")) // 2
    command = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", SMALL_DISK, "bash", room, disk, copy]
    since = time.monotonic()
    done = subprocess.run(
        [*map(str, command), *sweep_command(spec, *HERE)], text=True, timeout=120, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ).stdout  # fmt: skip
    assert "Traceback" not in done
    full, read_only = [line for line in done.splitlines() if line.startswith("creditscope: ")]
    assert "No space left on device" in full
    assert "kept" in full
    assert "Read-only file system" in read_only
    assert [line for line in done.splitlines() if line.startswith(("exit", "no resume"))] == ["exit 2", "exit 2"]
    record("disk full (small file system)", copy, undisturbed, since)


@pytest.mark.parametrize("folder", ["/proc/self", "/proc/sys/runs"])
def test_a_folder_that_cannot_be_written(spec, folder):
    done = sweep_here(spec, *HERE, "--out", folder, code=2)
    assert last_line(done.stderr).startswith(f"creditscope: --out {os.path.basename(folder)}: cannot ")


def test_two_writers(spec, undisturbed, tmp_path):
    first = start(spec, *HERE, "--out", tmp_path)
    wait_for(lambda: list(tmp_path.glob("*.jsonl")))
    since = time.monotonic()
    os.kill(first.pid, signal.SIGSTOP)  # it holds the folder, however slow this machine is
    try:
        second = sweep_here(spec, *HERE, "--resume", "--out", tmp_path, code=2)
        audit = subprocess.run(
            [sys.executable, "-m", "creditscope", "audit", tmp_path], capture_output=True, text=True, timeout=60,
            env=environment(),
        )  # fmt: skip
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert "another creditscope is training there; wait or choose another" in last_line(second.stderr)
    assert audit.returncode == 0, "a sweep can be judged while it runs"
    assert "bp" in audit.stdout
    assert first.communicate(timeout=60)
    assert first.returncode == 0
    record("two sweeps on one folder", tmp_path, undisturbed, since)


def test_a_torn_line(spec, undisturbed, begun):
    path = sorted(begun.glob("*.jsonl"))[0]
    path.write_bytes(path.read_bytes()[:-20])
    assert RunLog.read(path).end is None
    since = time.monotonic()
    resume(spec, begun, "torn last line", undisturbed, since)


def unfinished(folder, rows):
    """The logs as a kill left them: so many rows, and checkpoints of the end that are about to be damaged."""
    for path in folder.glob("*.jsonl"):
        path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:rows]))


def test_a_half_written_checkpoint(spec, undisturbed, begun):
    unfinished(begun, 4)
    for path in begun.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = resume(spec, begun, "half-written checkpoint", undisturbed, time.monotonic())
    assert done.stderr.count("not a readable checkpoint") == 4
    assert len(list(begun.glob("*.safetensors.damaged"))) == 4


def test_a_corrupted_checkpoint_header(spec, undisturbed, begun):
    unfinished(begun, 4)
    path = sorted(begun.glob("*.safetensors"))[0]
    data = bytearray(path.read_bytes())
    data[8:40] = b"\xff" * 32
    path.write_bytes(data)
    done = resume(spec, begun, "corrupted checkpoint (header)", undisturbed, time.monotonic())
    assert f"{path.name}: not a readable checkpoint" in done.stderr
    assert path.with_name(path.name + ".damaged").read_bytes() == data


def test_a_flipped_bit_in_the_numbers_of_a_checkpoint(spec, undisturbed, begun):
    unfinished(begun, 4)
    path = sorted(begun.glob("*.safetensors"))[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = resume(spec, begun, "corrupted checkpoint (one bit of its numbers)", undisturbed, time.monotonic())
    assert f"{path.name}: damaged, its checksum is not that of its content; kept as {path.name}.damaged" in done.stderr
    assert path.with_name(path.name + ".damaged").read_bytes() == data


@pytest.mark.peers
@pytest.mark.parametrize("jump", ["+3600", "-3600"])
def test_a_clock_that_jumps(spec, undisturbed, tmp_path, jump):
    """The wall clock of the process jumps by an hour between its two fleets; the monotonic clock goes on."""
    clock, folder = tmp_path / "clock", tmp_path / "runs"
    clock.write_text("+0")
    library = Path(find_spec("libfaketime").origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    faked = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    faked |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
    process = start(spec, *HERE, "--out", folder, more=faked)
    wait_for(lambda: list(folder.glob("*.jsonl")))
    os.kill(process.pid, signal.SIGSTOP)
    begun = {path.name for path in folder.glob("*.jsonl")}
    clock.write_text(jump)
    os.kill(process.pid, signal.SIGCONT)
    since = time.monotonic()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    record(f"wall clock jumps by {jump} s", folder, undisturbed, since)
    logs = [RunLog.read(path) for path in folder.glob("*.jsonl")]
    met = {member for log in logs if log.name in begun for member in log.header.fleet}
    before, after = (
        [datetime.fromisoformat(log.header.time_created) for log in logs if (log.spec.run_id in met) == first]
        for first in (True, False)
    )
    assert len(before) == len(after) == 2  # the fleet that was met while it trained, and the next
    assert (max(after) - min(before)).total_seconds() == pytest.approx(int(jump), abs=60), "it did jump"
    assert all(0 <= row.time_epoch < 60 for log in logs for row in log.epochs)
    assert all(0 <= row.time_probe < 60 for log in logs for row in log.probes)
    assert all(0 < log.end.time_total < 60 for log in logs)


# Much state and little work: about 100 MB a run.
WIDE = """\
preset: demo
data: FOLDER/wide.npz
seeds: [1, 2, 3, 4]
methods: [bp]
set: {width: 128, depth: 1, epochs: 1, batch: 32, probe.n: 16, probe.batch: 8, probe.epochs: [], probe.redraws: 0,
      probe.directions: 1}
"""
PEAK = """
import pathlib, re, sys
from creditscope.cli import main
try:
    main()
finally:
    peak = re.search(r"VmPeak:\\s*(\\d+) kB", pathlib.Path("/proc/self/status").read_text())
    sys.stderr.write(peak.group(1))
"""


def test_a_fleet_that_runs_out_of_memory_is_halved(tmp_path):
    """The address space is limited to what fleets of two need and a little more; the sweep begins with four."""
    draw, y = np.random.default_rng(0), np.arange(48) % 2
    x = draw.normal(size=(48, 25_000)).astype(np.float32)
    np.savez(tmp_path / "wide.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    spec = tmp_path / "wide.yaml"
    spec.write_text(WIDE.replace("FOLDER", str(tmp_path)))
    peace, war = tmp_path / "peace", tmp_path / "war"
    words = ["sweep", str(spec), "--device", "cpu", "--fleet-size"]
    # What is freed goes back at once, and threads share one heap: the address space is then what is in use.
    lean = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    measured = subprocess.run(
        [sys.executable, "-c", PEAK, *words, "2", "--out", str(peace)], capture_output=True, text=True, timeout=120,
        env=environment() | lean,
    )  # fmt: skip
    limit = 1024 * int(measured.stderr.splitlines()[-1]) + 100 * 2**20

    def short():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    since = time.monotonic()
    process = start(spec, *words[2:], "4", "--out", war, before=short, more=lean)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert error.count("did not fit into the memory; it is halved") == 1
    assert "2 of 2 fleets ended" in last_line(error)
    record("fleet out of memory (address space limit)", war, peace, since)


def test_a_lost_log_is_made_again(spec, undisturbed, begun):
    path = sorted(begun.glob("*.jsonl"))[0]
    path.unlink()
    sweep_here(spec, *HERE, "--resume", "--out", begun)
    assert RunLog.read(path).finished
    other = {name: rows for name, rows in contents(undisturbed).items() if name != path.name}
    assert {name: contents(begun)[name] for name in other} == other
