"""Sweeps on Ray, and what happens to them: workers and nodes killed, the driver killed, Ctrl-C."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

import pytest
from cases import cut_off
from cases.cut_off import WATCHFUL
from cases.faults import descendants, fleet_workers, hear_ctrl_c, record, wait_for
from cases.sweeps import contents, ends, environment, sweep_command, sweep_here, write_tiny

from creditscope.errors import BadInput
from creditscope.execution import remote
from creditscope.execution.folder import hold
from creditscope.execution.ray_cluster import RayFleets, RaySettings
from creditscope.execution.remote import RemoteContext

pytestmark = pytest.mark.ray
EPOCHS = 30  # long enough to be met while it trains
FLEETS = ("--fleet-size", 1, "--device", "cpu")
ON_RAY = ("--on", "ray", *FLEETS)


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("spec"), EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    sweep_here(spec, *FLEETS, "--out", folder)
    return folder


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of one node without cores, to which a test adds nodes."""
    for name, value in (environment() | WATCHFUL).items():
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL})
    yield made
    made.shutdown()


SMALL = {"object_store_memory": 80 * 2**20}


def start(*words, more=None):
    return subprocess.Popen(
        sweep_command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment() | (more or {}), preexec_fn=hear_ctrl_c,
    )  # fmt: skip


def finish(driver, code=0):
    out, error = driver.communicate(timeout=90)
    assert driver.returncode == code, error
    return out, error


def test_a_worker_killed_is_replaced(spec, undisturbed, tmp_path):
    driver = start(spec, *ON_RAY, "--out", tmp_path)
    (victim, *_) = wait_for(lambda: fleet_workers(driver.pid))
    os.kill(victim, signal.SIGKILL)
    since = time.monotonic()
    finish(driver)
    record("Ray worker killed (-9)", tmp_path, undisturbed, since)


def test_a_fleet_whose_worker_died_for_good_is_tried_in_halves(spec, undisturbed, tmp_path):
    driver = start(spec, "--on", "ray", "--fleet-size", 2, "--device", "cpu", "--retries", 0, "--out", tmp_path)
    (victim, *_) = wait_for(lambda: fleet_workers(driver.pid))
    os.kill(victim, signal.SIGKILL)
    _, error = finish(driver)
    assert "died 1 times" in error
    assert "3 of 3 fleets ended" in error
    assert ends(tmp_path) == ends(undisturbed)
    # Another company sums in another order: equal over the first steps, to what float32 keeps.
    for name, rows in contents(undisturbed).items():
        wanted, found = ([row["test_loss"] for row in lines[1:4]] for lines in (rows, contents(tmp_path)[name]))
        assert found == pytest.approx(wanted, rel=1e-4)


def test_a_node_killed_is_done_without(spec, undisturbed, tmp_path, cluster):
    _, second = (cluster.add_node(num_cpus=1, **SMALL) for _ in range(2))
    driver = start(spec, *ON_RAY, "--address", cluster.address, "--out", tmp_path)
    wait_for(lambda: len(fleet_workers(os.getpid())) == 2)
    cluster.remove_node(second, allow_graceful=False)
    since = time.monotonic()
    finish(driver)
    record("Ray node killed", tmp_path, undisturbed, since)


def test_a_node_that_falls_silent_is_done_without(spec, undisturbed, tmp_path, cluster):
    _, second = (cluster.add_node(num_cpus=1, **SMALL) for _ in range(2))
    (raylet,) = second.all_processes["raylet"]
    driver = start(spec, *ON_RAY, "--address", cluster.address, "--out", tmp_path)
    wait_for(lambda: fleet_workers(raylet.process.pid))
    silenced = [raylet.process.pid, *descendants(raylet.process.pid)]
    for pid in silenced:  # its connections stay open, and nobody answers
        os.kill(pid, signal.SIGSTOP)
    since = time.monotonic()
    try:
        finish(driver)
    finally:
        for pid in silenced:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    record("Ray node silent (stopped, connections open)", tmp_path, undisturbed, since)


@pytest.mark.slow
def test_a_node_cut_off_by_its_network_is_done_without(spec, undisturbed, tmp_path):
    """Needs Linux that lets a user make namespaces, as most do; see ``cases/cut_off.py``."""
    alone = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    out, report = tmp_path / "runs", tmp_path / "report.json"
    command = [*alone, sys.executable, cut_off.__file__, str(spec), str(out), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["code"] == 0, found["error"]
    assert found["cut_off"] == found["alive"] == 1, "the node was training, and nobody stopped it"
    assert "4 of 4 fleets ended" in found["error"]
    record("Ray node cut off (network namespace)", out, undisturbed, found["since"])


SAVE_OFTEN = """
import sys
import tempfile
if any("default_worker.py" in word for word in sys.orig_argv):
    import creditscope.engine.loop
    creditscope.engine.loop.CHECKPOINT_SECONDS = 0.1
"""


def test_a_lost_fleet_goes_on_from_its_checkpoint_in_a_shared_folder(tmp_path):
    spec = write_tiny(tmp_path, 80)
    sweep_here(spec, "--device", "cpu", "--out", tmp_path / "undisturbed")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SAVE_OFTEN)
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])}
    scratch, out = tmp_path / "scratch", tmp_path / "runs"
    driver = start(spec, "--on", "ray", "--device", "cpu", "--scratch", scratch, "--out", out, more=path)
    wait_for(lambda: len(list(scratch.glob("*/*.safetensors"))) == 4)
    (victim,) = fleet_workers(driver.pid)
    os.kill(victim, signal.SIGKILL)
    since = time.monotonic()
    before = timings(next(scratch.iterdir()))
    finish(driver)
    record("Ray worker killed (-9), shared scratch", out, tmp_path / "undisturbed", since)
    after = timings(out)
    for name, seconds in before.items():  # what was saved is not measured again: the clock never says the same twice
        assert len(after[name]) == 81
        assert after[name][:2] == seconds[:2]
    assert list(scratch.iterdir()) == []


def timings(folder):
    rows = {path.name: map(json.loads, path.read_text().splitlines()) for path in folder.glob("*.jsonl")}
    return {name: [row["time_epoch"] for row in each if row["kind"] == "epoch"] for name, each in rows.items()}


def test_a_driver_killed_is_restarted_and_does_only_the_rest(spec, undisturbed, tmp_path, cluster):
    cluster.add_node(num_cpus=1, **SMALL)
    command = (spec, *ON_RAY, "--address", cluster.address, "--out", tmp_path)
    driver = start(*command)
    wait_for(lambda: list(tmp_path.glob("*.jsonl")))
    driver.kill()
    since = time.monotonic()
    driver.communicate()
    done = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.glob("*.jsonl")}
    assert 0 < len(done) < 4
    out, _ = finish(start(*command, "--resume"))
    assert f"{len(done)} of 4 runs are done already" in out
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in done} == done
    record("driver killed (-9) and restarted", tmp_path, undisturbed, since)


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(spec, undisturbed, tmp_path):
    driver = start(spec, *ON_RAY, "--out", tmp_path)
    wait_for(lambda: list(tmp_path.glob("*.jsonl")))
    driver.send_signal(signal.SIGINT)
    since = time.monotonic()
    _, error = driver.communicate(timeout=20)
    assert driver.returncode == 130, error
    assert "stopped; what was logged is kept, and --resume goes on with it" in error
    assert all(status == ["finished"] for status in ends(tmp_path).values())
    finish(start(spec, *FLEETS, "--resume", "--out", tmp_path))
    record("Ctrl-C on Ray, then --resume here", tmp_path, undisturbed, since)


def test_files_go_to_a_store_from_the_workers(spec, undisturbed, tmp_path):
    store = tmp_path / "store"
    finish(start(spec, *ON_RAY, "--store", f"file://{store}", "--out", tmp_path / "runs"))
    assert contents(store) == contents(tmp_path / "runs") == contents(undisturbed)
    assert len(list(store.glob("*.safetensors"))) == 4
    assert not list((tmp_path / "runs").glob("*.safetensors"))


def test_a_cluster_that_is_not_there_is_one_line(spec, tmp_path):
    done = sweep_here(spec, *ON_RAY, "--address", "127.0.0.1:1", "--out", tmp_path, code=2)
    assert "creditscope: --address 127.0.0.1:1: no Ray there" in done.stderr.splitlines()[-1]


def test_a_cluster_without_what_is_asked_for_is_one_line(spec, tmp_path):
    for words, message in (
        (("--cpus", 999), "--cpus 999: no machine of this Ray cluster has more than"),
        (("--device", "cuda"), "no GPU"),
    ):
        done = sweep_here(spec, *ON_RAY, *words, "--out", tmp_path, code=2)
        assert message in done.stderr.splitlines()[-1]


def test_without_ray_the_install_line_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"Ray is not installed; pip install 'creditscope\[ray\]'"):
        RayFleets(RaySettings(), RemoteContext({})).__enter__()


def test_a_rule_that_is_a_python_object_stays_here():
    with pytest.raises(BadInput, match="rules=: no other machine can be given a Python object"):
        RayFleets(RaySettings(), RemoteContext({}, rules=(object(),))).__enter__()


def test_a_fleet_that_no_machine_can_hold_is_one_line(spec, tmp_path, cluster):
    """Two machines of two cores hold four fleets of one core, and none of three."""
    for _ in range(2):
        cluster.add_node(num_cpus=2, **SMALL)
    for words, most in ((("--cpus", 3), "2"), (("--gpus", 1), "0")):
        done = sweep_here(spec, *ON_RAY, *words, "--address", cluster.address, "--out", tmp_path, code=2)
        assert f"no machine of this Ray cluster has more than {most}; ask for fewer" in done.stderr.splitlines()[-1]


def test_an_address_that_never_answers_is_one_line(spec, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = sweep_here(spec, *ON_RAY, "--address", address, "--out", tmp_path, code=2)
    assert f"--address {address}: what listens there does not answer as Ray" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_cluster_whose_control_store_died_is_one_line(tmp_path):
    long = write_tiny(tmp_path, 3000)
    driver = start(long, *ON_RAY, "--out", tmp_path / "runs")
    wait_for(lambda: fleet_workers(driver.pid))
    (store,) = [pid for pid, command in descendants(driver.pid).items() if "gcs_server" in command.split(" ")[0]]
    os.kill(store, signal.SIGKILL)
    _, error = driver.communicate(timeout=120)
    assert driver.returncode == 2, error
    assert "does not answer any more; what ended is kept, go on with --resume" in error.splitlines()[-1]


def test_what_an_ended_worker_left_on_its_machine_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive, young, other = (tmp_path / f"creditscope-fleet-{n}" for n in ("dead", "alive", "young", "x"))
    other = tmp_path / "creditscope-other"
    for folder in (dead, alive, young, other):
        folder.mkdir()
        (folder / "half.safetensors").write_bytes(b"x")
    with hold(alive):
        for folder in (dead, alive):
            os.utime(folder, (0, 0))
        remote._clear_dead()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in (alive, young, other))
