"""Faults for sweeps: processes to kill, and a record of what was lost, for the reliability page."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases.sweeps import contents, ends

Logs = dict[str, list[Any]]
REPORT = "CREDITSCOPE_FAULT_REPORT"
"""Name of the file to which each injected fault adds a line; unset: nothing is written."""


def wait_for(what: Callable[[], object], seconds: float = 60) -> object:
    """Wait until something is true, and hand it over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("it never happened")


def descendants(pid: int) -> dict[int, str]:
    """Every process below one, with its command line."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: _command(child) for child in found - {pid}}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def fleet_workers(pid: int) -> list[int]:
    """The Ray workers below a process that are training a fleet now."""
    return [child for child, command in descendants(pid).items() if command.startswith("ray::creditscope fleet")]


def record(fault: str, disturbed: Path, undisturbed: Path, since: float) -> None:
    """Require that nothing was lost, and write it down for the reliability page.

    Args:
        fault: What was done.
        disturbed: The folder of the sweep that met it.
        undisturbed: The same sweep, left in peace.
        since: When the fault was injected, on the monotonic clock.
    """
    record_equal(fault, contents(undisturbed), since, contents(disturbed))
    assert {name: ["finished"] for name in ends(undisturbed)} == ends(disturbed)


def record_equal(fault: str, wanted: Logs, since: float, found: Logs) -> None:
    """Require that logs are those of an undisturbed training, and write it down.

    Args:
        fault: What was done.
        wanted: The logs of an undisturbed training, by name, as ``contents`` gives them.
        since: When the fault was injected, on the monotonic clock.
        found: The logs of the one that met it.
    """
    seconds = time.monotonic() - since
    ended = {name: [row["status"] for row in rows if row["kind"] == "end"] for name, rows in found.items()}
    runs_lost = [name for name in wanted if len(ended.get(name, [])) != 1]
    rows_lost = sum(row not in found.get(name, []) for name, rows in wanted.items() for row in rows)
    if os.environ.get(REPORT):
        line = {"fault": fault, "runs": len(wanted), "rows": sum(map(len, wanted.values()))}
        line |= {"runs_lost": len(runs_lost), "rows_lost": rows_lost, "seconds": round(seconds, 2)}
        with Path(os.environ[REPORT]).open("a") as file:
            file.write(json.dumps(line) + "\n")
    assert runs_lost == []
    assert rows_lost == 0
    assert found == wanted


def hear_ctrl_c() -> None:
    """For a child before it starts: below a background shell SIGINT is ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
