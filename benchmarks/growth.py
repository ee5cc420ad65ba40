"""How cost grows with the number of runs, depth, width and batch: time a run-step, and peak memory with its forecast.

One axis at a time moves away from the audit's own net (ResMLP, width 256, 4 blocks, batch 128, DFA). Time is that of
training steps as the recipe does them; on a CPU it is CPU seconds on one thread. Memory is what the whole fleet
takes: building, two epochs' steps, evaluation, probes, the copy at an epoch boundary. On a GPU that is what the
allocator took from it at most (``max_memory_reserved``: recorded steps keep memory that no tensor holds); on a CPU how
far the peak of the resident memory rose, in a process of its own, expensive probes of one run included; on a GPU they
take a share of its memory, whatever the fleet. The forecast is ``engine.memory.fleet_bytes``, made
from shapes before the fleet is built.

    python benchmarks/growth.py [--device cpu|cuda] [--steps 100] [--out benchmarks/results/growth-cpu.json]
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from plain import noise, seconds

from creditscope.data.dataset import Dataset
from creditscope.engine.checkpoint import FleetState
from creditscope.engine.fleet import Fleet
from creditscope.engine.memory import fleet_bytes
from creditscope.engine.start import default_model
from creditscope.plans.presets import build_specs, preset
from creditscope.probes.expensive import measure_expensive
from creditscope.records import RunSpec
from creditscope.records.provenance import provenance
from creditscope.records.table import Table

AXES: dict[str, dict[str, Sequence[int]]] = {
    "cpu": {"runs": (1, 2, 4, 8), "depth": (2, 4, 8), "width": (64, 128, 256, 512), "batch": (32, 128, 512)},
    "cuda": {
        "runs": (1, 2, 4, 8, 16, 32, 64, 128),
        "depth": (2, 4, 8, 16),
        "width": (64, 128, 256, 512),
        "batch": (32, 64, 128, 256, 512),
    },
}
# How many runs are stacked while another axis moves.
STACKED = {"cpu": 4, "cuda": 16}
# Few images on a CPU: neither a step's time nor what the fleet adds to the process depends on how many there are.
IMAGES = {"cpu": (2_000, 1_000), "cuda": (50_000, 10_000)}
WARM_STEPS = 3


def points(device: str) -> list[tuple[str, int, dict[str, int]]]:
    """Axis, value on it, and the settings of that point."""
    usual = {"runs": STACKED[device], "depth": 4, "width": 256, "batch": 128}
    return [(axis, value, usual | {axis: value}) for axis, values in AXES[device].items() for value in values]


def specs_of(settings: dict[str, int], method: str, data: Dataset) -> list[RunSpec]:
    changes = {key: value for key, value in settings.items() if key != "runs"}
    return build_specs(
        preset("audit"), data.spec, data.classes, method.split(","), range(settings["runs"]), {"epochs": 2, **changes}
    )


def live(specs: list[RunSpec], data: Dataset, device: torch.device, steps: int) -> float:
    """Build a fleet and do all that it does in two epochs; seconds a run-step of the second."""
    fleet = Fleet(specs, data, default_model, device)
    with fleet.streams.turn():
        boundary = FleetState(fleet, 0)
        measure(fleet)
        fleet.train_epoch(1, steps=WARM_STEPS)
        reached = FleetState(fleet, 1)  # the old one goes only when the new one is written down, as in the loop
        measure(fleet)
        if device.type == "cpu":
            # Few redraws: their memory is bounded otherwise, and they take long.
            measure_expensive(fleet.snapshot(0, 1, reached.state), 2, fleet.spec.probe.directions, keep_draws=False)
        boundary = reached
        began = time.process_time()
        wall = seconds(lambda: fleet.train_epoch(2, steps=steps), device)
        taken = wall if device.type == "cuda" else time.process_time() - began
    fleet.streams.wait()
    del boundary, reached
    return taken / (min(steps, fleet.steps_per_epoch) * len(specs))


def measure(fleet: Fleet) -> None:
    fleet.evaluate()
    fleet.observe()


def on_card(specs: list[RunSpec], data: Dataset, steps: int) -> tuple[float, int, int]:
    """Seconds a run-step, bytes that the allocator took at most, and bytes that tensors held at most."""
    device = torch.device("cuda")
    torch.cuda.init()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    taken = live(specs, data, device, steps)
    return taken, torch.cuda.max_memory_reserved() - before[0], torch.cuda.max_memory_allocated() - before[1]


def resident(field: str) -> int:
    """Bytes of one line of the kernel's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def grown(settings: dict[str, int], method: str) -> int:
    """How far the resident memory of this process rises at most; what torch loads at its first steps is not counted."""
    data = noise(*IMAGES["cpu"])
    cpu = torch.device("cpu")
    torch.set_num_threads(1)
    live(specs_of(settings | {"runs": 1, "width": 8, "batch": 8}, method, data), data, cpu, 2)
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    live(specs_of(settings, method, data), data, cpu, 2)
    return resident("VmHWM") - before


def in_a_process(settings: dict[str, int], method: str) -> int:
    """The same in a process of its own; its allocator returns every freed tensor."""
    command = [sys.executable, __file__, "--method", method, "--point", json.dumps(settings)]
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    return int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def predict_anew(path: Path) -> None:
    """Forecasts of today for what a results file holds as measured."""
    record = json.loads(path.read_text())
    device = record["provenance"]["device"]
    data = noise(*IMAGES[device])
    for row in record["results"]:
        settings = {key: row[key] for key in ("runs", "depth", "width", "batch")}
        row["predicted"] = fleet_bytes(specs_of(settings, record["method"], data), device)
        print(f"{row['axis']} {row['value']}: predicted/measured {row['predicted'] / row['measured']:.2f}", flush=True)
    path.write_text(json.dumps(record | {"predicted_later": True}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--method", default="dfa", help="methods, separated by commas")
    parser.add_argument("--steps", type=int, help="timed steps; else 100 on a GPU, 10 on a CPU")
    parser.add_argument("--point", help="measure the memory of one point here, and print it")
    parser.add_argument(
        "--predict", type=Path, metavar="FILE", help="predict again for a results file, measure nothing"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.point:
        print(grown(json.loads(options.point), options.method))
        return
    if options.predict:
        predict_anew(options.predict)
        return
    device = torch.device(options.device)
    data = noise(*IMAGES[options.device])
    steps = options.steps or (100 if options.device == "cuda" else 10)
    if options.device == "cpu":
        torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    for axis, value, settings in points(options.device):
        specs = specs_of(settings, options.method, data)
        row: dict[str, Any] = {"axis": axis, "value": value, **settings, "predicted": fleet_bytes(specs, device.type)}
        if options.device == "cuda":
            row["seconds"], row["measured"], row["tensors"] = on_card(specs, data, steps)
        else:
            row["seconds"] = live(specs, data, device, steps)
            row["measured"] = in_a_process(settings, options.method)
        results.append(row)
        print(f"{axis} {value}: predicted/measured {row['predicted'] / row['measured']:.2f}", flush=True)
    table = [
        (
            row["axis"], str(row["value"]), f"{1e6 * row['seconds']:.1f}", f"{row['measured'] / 2**20:.0f}",
            f"{row['predicted'] / 2**20:.0f}", f"{row['predicted'] / row['measured']:.2f}",
        )
        for row in results
    ]  # fmt: skip
    heads = ("axis", "value", "µs/run-step", "measured MiB", "predicted MiB", "predicted/measured")
    print(Table(heads, tuple(table)).to_text())
    ratios = [row["predicted"] / row["measured"] for row in results]
    print(f"predicted/measured between {min(ratios):.2f} and {max(ratios):.2f}; wanted 0.80 to 1.20")
    name = torch.cuda.get_device_name() if device.type == "cuda" else None
    facts = provenance(options.device, name) | {"threads": str(torch.get_num_threads()), "steps": str(steps)}
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        record = {"provenance": facts, "method": options.method, "results": results}
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
