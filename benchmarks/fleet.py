"""Ways to train many runs on this machine's cores, each against the plain loop that trains one run at a time.

All ways do the same steps on the same samples, with augmentation, schedule and AdamW, side by side in one run:
``stacked`` is one fleet on all threads, ``processes`` are as many parts of it as there are cores, one thread each,
at the same time; ``fused`` (with --fused: it takes minutes to compile) is the stack compiled. Speed is claimed as a
ratio only. ``chosen`` is what the calibration of ``creditscope train`` picks for a long training.

    python benchmarks/fleet.py [--fused] [--rounds 3] [--out benchmarks/results/fleet-cpu.json]
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from plain import PlainRun, seconds

from creditscope.data import Dataset, load_data, synthetic
from creditscope.engine.estimate import step_seconds
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.plans.presets import build_specs, preset
from creditscope.records import RunSpec
from creditscope.records.provenance import provenance
from creditscope.records.table import Table

CPU = torch.device("cpu")
WIDE = ("bp", "dfa-rms", "dfa-rms+pen0.01", "bp@frozen", "dfa-rms@frozen")


def case(name: str) -> tuple[list[RunSpec], Dataset, int]:
    """Runs, data and steps to time."""
    if name == "tiny":
        data = synthetic(n_train=8192, n_test=256, dim=64, classes=10)
        return build_specs(preset("demo"), data.spec, 10, ("bp",), range(64), {"width": 32, "depth": 2}), data, 40
    data = load_data("fashion-mini")
    methods, changes = (None, {}) if name == "demo" else (WIDE, {"width": 256})
    return build_specs(preset("demo"), data.spec, data.classes, methods, (1, 2, 3), changes), data, 20


CASES = {
    "demo": "the demo's methods, 3 seeds each, 784 → 64",
    "wide": "15 runs, 784 → 256",
    "tiny": "64 runs, 64 → 32",
}


class Share:
    """One of several processes that train a part of the runs each, at the same time."""

    def __init__(self, name: str, part: int, parts: int) -> None:
        command = [sys.executable, __file__, "--share", name, str(part), str(parts)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().strip() == "ready"

    def go(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> float:
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def train_share(name: str, part: int, parts: int) -> None:
    """What such a process does: wait for the start signal, train, say how long a step took."""
    torch.set_num_threads(1)
    specs, data, steps = case(name)
    fleet = Fleet(specs[part::parts], data, default_model, CPU)
    fleet.train_epoch(1, steps=3)
    print("ready", flush=True)
    for epoch, _ in enumerate(sys.stdin, 2):
        print(seconds(lambda epoch=epoch: fleet.train_epoch(epoch, steps=steps), CPU) / steps, flush=True)


def compare(name: str, rounds: int, fused: bool) -> dict[str, list[float]]:
    """Seconds a run-step of every way, interleaved so that noise hits all of them."""
    specs, data, steps = case(name)
    cores = torch.get_num_threads()
    plain = [PlainRun(spec, data, CPU, "one") for spec in specs]
    ways = {"stacked": Fleet(specs, data, default_model, CPU)}
    if fused:
        ways["fused"] = Fleet(specs, data, default_model, CPU, fused=True)
    for fleet in ways.values():
        fleet.train_epoch(1, steps=3)
    for run in plain:
        run.steps(2)
    shares = [Share(name, part, cores) for part in range(cores)]
    took: dict[str, list[float]] = {"plain": [], **{way: [] for way in ways}, "processes": []}
    for epoch in range(2, rounds + 2):
        took["plain"].append(seconds(lambda: [run.steps(steps) for run in plain], CPU) / steps / len(specs))
        for way, fleet in ways.items():
            spent = seconds(lambda fleet=fleet, epoch=epoch: fleet.train_epoch(epoch, steps=steps), CPU)
            took[way].append(spent / steps / len(specs))
        for share in shares:
            share.go()
        took["processes"].append(max(share.result() for share in shares) / len(specs))
    for share in shares:
        share.end()
    return took


def chosen(name: str) -> str:
    """What the calibration picks, as ``execution.calibrate`` does for a long training."""
    specs, data, _ = case(name)
    cores = torch.get_num_threads()
    together = step_seconds(Fleet(specs, data, default_model, CPU, traced=False))
    torch.set_num_threads(1)
    apart = step_seconds(Fleet(specs[::cores], data, default_model, CPU, traced=False))
    torch.set_num_threads(cores)
    return "processes" if apart < together else "stacked"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--share", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.share:
        train_share(options.share[0], int(options.share[1]), int(options.share[2]))
        return
    results, rows = [], []
    for name in options.cases.split(","):
        took = {way: statistics.median(times) for way, times in compare(name, options.rounds, options.fused).items()}
        best, picked = min(took, key=took.__getitem__), chosen(name)
        results.append({"case": name, "about": CASES[name], "seconds": took, "chosen": picked, "best": best})
        ratios = [
            f"{took['plain'] / took[way]:.2f}x" if way in took else "–" for way in ("stacked", "processes", "fused")
        ]
        rows.append((CASES[name], f"{1e6 * took['plain']:.0f}", *ratios, picked))
        print(*rows[-1], sep="  ", flush=True)
    heads = ("work", "plain µs/run-step", "plain/stacked", "plain/processes", "plain/fused", "chosen")
    print(Table(heads, tuple(rows)).to_text())
    facts = provenance("cpu", None) | {"threads": str(torch.get_num_threads())}
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        options.out.write_text(json.dumps({"provenance": facts, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
