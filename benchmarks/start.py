"""How long `creditscope --help` takes, and which packages it loads.

Each start is a process of its own, with its compiled files already there. Where others share the cores, wall-clock says
little, so CPU seconds are given too.

    python benchmarks/start.py [--rounds 9] [--out benchmarks/results/start-cpu.json]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from creditscope.records.provenance import provenance
from creditscope.records.table import Table

HELP = ("-m", "creditscope", "--help")


def timed() -> tuple[float, float]:
    """Wall-clock and CPU seconds of one start, output thrown away."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *HELP], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, status
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def loads_torch() -> bool:
    """Whether torch is among the modules that a start imports, by Python's own account of them."""
    command = [sys.executable, "-X", "importtime", *HELP]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in said.splitlines()}
    assert "creditscope" in names
    return "torch" in names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    timed()
    wall, cpu = zip(*(timed() for _ in range(options.rounds)), strict=True)
    result = {
        "best_wall_s": min(wall),
        "median_wall_s": statistics.median(wall),
        "best_cpu_s": min(cpu),
        "median_cpu_s": statistics.median(cpu),
        "loads_torch": loads_torch(),
    }
    heads = ("wall s: best, median", "CPU s: best, median", "loads torch")
    wall_text, cpu_text = (f"{result[f'best_{k}_s']:.2f}, {result[f'median_{k}_s']:.2f}" for k in ("wall", "cpu"))
    print(Table(heads, ((wall_text, cpu_text, "yes" if result["loads_torch"] else "no"),)).to_text())
    facts = provenance() | {"rounds": str(options.rounds), "load_average": f"{os.getloadavg()[1]:.1f}"}
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        options.out.write_text(json.dumps({"provenance": facts, "results": [result]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
