"""A tiny sweep: four runs on synthetic data, two fleets of two, a second or so."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from creditscope.data import load_data
from creditscope.plans.grid import expand
from creditscope.plans.spec_file import read_spec
from creditscope.records import RunSpec

TINY = """\
preset: demo
data: synthetic
seeds: [1, 2]
methods: [bp, dfa]
set: {width: 8, depth: 2, epochs: EPOCHS, batch: 512, probe.n: 32, probe.batch: 16, probe.epochs: [], probe.redraws: 3,
      probe.directions: 2}
"""


def write_tiny(folder: Path, epochs: int = 2) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(TINY.replace("EPOCHS", str(epochs)))
    return path


def tiny_runs(folder: Path, epochs: int = 2) -> list[RunSpec]:
    """The runs of the tiny sweep."""
    data = load_data("synthetic")
    return expand(read_spec(write_tiny(folder, epochs)), {"synthetic": (data.spec, data.classes)})


def sweep_command(*words: object) -> list[str]:
    return [sys.executable, "-m", "creditscope", "sweep", *map(str, words)]


def environment() -> dict[str, str]:
    """One thread, as bitwise equality wants, and a Ray that talks to nobody."""
    return os.environ | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def sweep_here(*words: object, code: int = 0, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the verb in a process of its own and check how it exits."""
    done = subprocess.run(sweep_command(*words), capture_output=True, text=True, timeout=timeout, env=environment())
    assert done.returncode == code, done.stderr
    return done


def contents(folder: Path) -> dict[str, list[Any]]:
    """Every log of a folder, row by row as parsed JSON, without the wall-clock keys."""
    return {path.name: [_timeless(line) for line in path.read_text().splitlines()] for path in folder.glob("*.jsonl")}


def _timeless(line: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(line).items() if not key.startswith("time_")}


def ends(folder: Path) -> dict[str, list[str]]:
    """The status of every end row of every log: one ``finished`` each, when all is well."""
    return {name: [row["status"] for row in rows if row["kind"] == "end"] for name, rows in contents(folder).items()}
