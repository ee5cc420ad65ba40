"""How long `creditscope audit` takes over many logs of 100 epochs, and how much memory, on one core.

The logs are real rows of the committed CIFAR-10 runs under other headers: cells of three seeds, each claim with its
frozen twin. Each audit is a process of its own on one core, start-up included. Where others share the core, wall-clock
says little, so CPU seconds are given too: the best of the rounds and their median, and in the same rounds what Python's
own json needs to parse these files and do nothing with them.

    python benchmarks/audit_scale.py [--logs 100 300 1000] [--rounds 3] [--out benchmarks/results/audit-scale.json]
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from creditscope.records.provenance import provenance
from creditscope.records.table import Table

RESULTS = Path(__file__).parents[1] / "results" / "cifar10-h200"
METHODS = ("dfa-rms", "dfa-rms@frozen")
SEEDS = 3


def template(method: str) -> list[bytes]:
    """Header and other rows of a committed log of 100 epochs."""
    for path in sorted(RESULTS.glob(f"{method}-s42-*.jsonl.gz")):
        head, body = gzip.decompress(path.read_bytes()).split(b"\n", 1)
        if json.loads(head)["spec"]["epochs"] == 100:
            return [head, body]
    raise SystemExit(f"{RESULTS.name} holds no log of {method} with 100 epochs")


def write_logs(count: int, folder: Path) -> int:
    """Write that many logs, three seeds of a claim and three of its frozen twin in turn; how many bytes."""
    templates = [template(method) for method in METHODS]
    size = 0
    for index in range(count):
        pair, within = divmod(index, SEEDS * len(templates))
        head, body = templates[within // SEEDS]
        header = json.loads(head)
        header["spec"] |= {"seed": within % SEEDS, "batch": 100 + pair}
        size += (folder / f"{index:05d}.jsonl").write_bytes(json.dumps(header).encode() + b"\n" + body)
    return size


AUDIT = ("-m", "creditscope", "audit")
PARSE = (
    "-c",
    "import json, pathlib, sys\n"
    "for file in pathlib.Path(sys.argv[1]).iterdir():\n"
    "    for row in file.open(): json.loads(row)",
)


def timed(command: tuple[str, ...], folder: Path) -> tuple[float, float, float]:
    """Wall-clock seconds, CPU seconds and peak resident MiB of one Python process, output thrown away."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command, str(folder)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, status
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = []
    for count in options.logs:
        with tempfile.TemporaryDirectory() as scratch:
            size = write_logs(count, Path(scratch))
            rounds = [(*timed(AUDIT, Path(scratch)), timed(PARSE, Path(scratch))[1]) for _ in range(options.rounds)]
        wall, cpu, peak, parse = zip(*rounds, strict=True)
        results.append(
            {
                "logs": count,
                "mib_of_logs": size / 2**20,
                "best_wall_s": min(wall),
                "median_wall_s": statistics.median(wall),
                "best_cpu_s": min(cpu),
                "median_cpu_s": statistics.median(cpu),
                "best_json_cpu_s": min(parse),
                "median_json_cpu_s": statistics.median(parse),
                "peak_mib": max(peak),
            }
        )
    first = results[0]
    rows = [
        (
            str(row["logs"]),
            f"{row['mib_of_logs']:.0f}",
            f"{row['best_wall_s']:.2f}, {row['median_wall_s']:.2f}",
            f"{row['best_cpu_s']:.2f}, {row['median_cpu_s']:.2f}",
            f"{1e3 * row['best_cpu_s'] / row['logs']:.2f}",
            f"{row['median_cpu_s'] / row['median_json_cpu_s']:.2f}",
            f"{row['peak_mib']:.0f}",
            f"{row['logs'] / first['logs']:.0f}x",
            f"{row['peak_mib'] / first['peak_mib']:.2f}x",
        )
        for row in results
    ]
    columns = (
        *("logs", "MiB of logs", "wall s: best, median", "CPU s: best, median", "CPU ms a log", "over json"),
        *("peak MiB", "logs ratio", "peak ratio"),
    )
    print(Table(columns, tuple(rows)).to_text())
    facts = provenance() | {"cores": "1", "rounds": str(options.rounds), "load_average": f"{os.getloadavg()[1]:.1f}"}
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        options.out.write_text(json.dumps({"provenance": facts, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
