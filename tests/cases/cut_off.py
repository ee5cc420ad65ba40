"""A sweep on two Ray nodes in network namespaces of their own, of which one is cut off while it trains.

Run as root of new user, network, mount and process namespaces (``unshare``): all of it ends with this process, and
nothing outside can be reached. The second node's packets are sent to a hardware address that nobody has: no
connection is closed, nobody is told, they are just lost.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cases.faults import descendants, fleet_workers, wait_for
from cases.sweeps import environment, sweep_command

HEAD, NODE, PORT = "10.77.0.1", "10.77.0.2", 6399
SMALL = ("--object-store-memory=100000000",)
NOBODY = "02:00:00:00:00:99"
# A node is given up after three seconds of silence, so that a test need not wait for half a minute.
WATCHFUL = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "2000",
    "RAY_grpc_client_keepalive_timeout_ms": "2000",
}


def ip(*words: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True)


def listens() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HEAD, PORT)) == 0


def main(spec: str, out: str, report: str) -> int:
    sessions = Path(tempfile.gettempdir()) / "ray"  # where Ray leaves the address of the last cluster, for everybody
    sessions.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(sessions)], check=True)
    ip("link", "set", "lo", "up")
    other = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    there = ("nsenter", f"--net=/proc/{other.pid}/ns/net")
    own = Path("/proc/self/ns/net").readlink()
    wait_for(lambda: Path(f"/proc/{other.pid}/ns/net").readlink() != own)
    ip("link", "add", "near", "type", "veth", "peer", "name", "far")
    ip("link", "set", "far", "netns", str(other.pid))
    for name, address, inside in (("near", HEAD, ()), ("far", NODE, there)):
        ip("link", "set", "lo", "up", inside=inside)
        ip("address", "add", f"{address}/24", "dev", name, inside=inside)
        ip("link", "set", name, "up", inside=inside)

    quiet = environment() | WATCHFUL | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ray = (
        str(Path(sys.executable).parent / "ray"),
        "start",
        "--num-cpus=1",
        "--object-store-memory=100000000",
        "--block",
    )
    head = ("--head", f"--node-ip-address={HEAD}", f"--port={PORT}", "--include-dashboard=false")
    log = Path(report).with_suffix(".ray").open("w")
    subprocess.Popen([*ray, *head], env=quiet, stdout=log, stderr=log)
    wait_for(listens)
    node = (f"--address={HEAD}:{PORT}", f"--node-ip-address={NODE}")
    far = subprocess.Popen([*there, *ray, *node], env=quiet, stdout=log, stderr=log)
    wait_for(lambda: any("/raylet " in command for command in descendants(far.pid).values()))
    words = (spec, "--on", "ray", "--address", f"{HEAD}:{PORT}", "--fleet-size", 1, "--device", "cpu", "--out", out)
    driver = subprocess.Popen(
        sweep_command(*words), env=quiet, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    cut_off = wait_for(lambda: fleet_workers(far.pid))
    ip("neigh", "replace", NODE, "lladdr", NOBODY, "dev", "near", "nud", "permanent")
    ip("neigh", "replace", HEAD, "lladdr", NOBODY, "dev", "far", "nud", "permanent", inside=there)
    since = time.monotonic()
    _, error = driver.communicate(timeout=150)
    alive = [pid for pid in cut_off if Path(f"/proc/{pid}").exists()]
    result = {"code": driver.returncode, "error": error, "since": since, "cut_off": len(cut_off), "alive": len(alive)}
    Path(report).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
