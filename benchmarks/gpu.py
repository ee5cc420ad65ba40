"""A fleet of DFA runs on a GPU against the plain eager loop and against the GPU's own limit, all in one run.

The limit is what no stacked training can beat: AdamW's memory traffic (parameter, gradient and two moments read, three
written) at the measured copy bandwidth, plus the arithmetic of the step at the measured rate of a large matrix product
in the same precision. Both loops train as the recipe does: crops, flips, schedule and AdamW included.

    python benchmarks/gpu.py [--runs 1,16,64,128] [--out benchmarks/results/gpu-h200.json]
"""

import argparse
import json
import statistics
from pathlib import Path

import torch
from plain import PlainRun, noise, seconds
from torch.utils.flop_counter import FlopCounterMode

from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.plans.presets import build_specs, preset
from creditscope.records.provenance import provenance
from creditscope.records.table import Table

PLAIN_STEPS = 100
ADAMW_TRAFFIC = 7  # floats moved a parameter: four read, three written


def bandwidth(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes."""
    a = torch.empty(2**28, device=device)
    b = torch.empty_like(a)
    b.copy_(a)
    took = min(seconds(lambda: [b.copy_(a) for _ in range(10)], device) for _ in range(3)) / 10
    return 2 * a.nbytes / took


def matrix_rate(device: torch.device) -> float:
    """Operations a second of a large product in the precision now set."""
    a, b = torch.randn(2, 8192, 8192, device=device)
    a @ b
    took = min(seconds(lambda: [a @ b for _ in range(5)], device) for _ in range(3)) / 5
    return 2 * 8192**3 / took


def limit(fleet: Fleet, bytes_a_second: float, flops_a_second: float) -> float:
    """Seconds a run-step at the GPU's limit."""
    trained = sum(fleet.params[name][0].numel() for name in fleet.trained[0])
    fleet.draws.begin(1)
    batch = fleet.draws.next_batch()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        for at in range(len(fleet.groups)):
            fleet.credit(at, batch.x, batch.y)
    arithmetic = counter.get_total_flops() / len(fleet.specs) / flops_a_second
    return ADAMW_TRAFFIC * 4 * trained / bytes_a_second + arithmetic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="1,16,64,128")
    parser.add_argument("--method", default="dfa")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda")
    data = noise()
    on_device = data.to(device)
    copied = bandwidth(device)
    results, rows = [], []
    for matmul in ("float32", "tf32"):
        torch.set_float32_matmul_precision("high" if matmul == "tf32" else "highest")
        rate = matrix_rate(device)
        for runs in map(int, options.runs.split(",")):
            changes = {"epochs": 100, "matmul": matmul}
            specs = build_specs(preset("audit"), data.spec, data.classes, [options.method], range(runs), changes)
            plain = {kind: PlainRun(specs[0], on_device, device, kind) for kind in ("block", "one")}
            for run in plain.values():
                run.steps(20)
            for fused in (False, True):
                fleet = Fleet(specs, data, default_model, device, fused)
                begun = seconds(lambda fleet=fleet: fleet.train_epoch(1, steps=3), device)
                work = fleet.steps_per_epoch * runs
                slow = {kind: [] for kind in plain}
                fast = []
                for number in range(options.rounds):
                    for kind, run in plain.items():
                        slow[kind].append(seconds(lambda run=run: run.steps(PLAIN_STEPS), device) / PLAIN_STEPS)
                    fast.append(seconds(lambda fleet=fleet, n=number: fleet.train_epoch(n + 2), device) / work)
                each = statistics.median(fast)
                least = limit(fleet, copied, rate)
                block, one = (statistics.median(slow[kind]) for kind in ("block", "one"))
                results.append(
                    {
                        "runs": runs, "matmul": matmul, "fused": fused, "fleet": each, "plain": block, "plain_one": one,
                        "limit": least, "start": begun, "peak": torch.cuda.max_memory_allocated(),
                    }
                )  # fmt: skip
                rows.append(
                    (
                        str(runs), matmul, "fused" if fused else "", f"{1e6 * each:.1f}", f"{1e6 * block:.0f}",
                        f"{block / each:.0f}x", f"{one / each:.0f}x", f"{1e6 * least:.1f}", f"{each / least:.2f}x",
                        f"{begun:.1f}",
                    )
                )  # fmt: skip
                print(*rows[-1], flush=True)
                del fleet
                torch.cuda.empty_cache()
    heads = (
        *("runs", "matmul", "path", "fleet µs/run-step", "plain µs/step", "plain/fleet", "plain with one AdamW/fleet"),
        *("limit µs", "fleet/limit", "first steps s"),
    )
    print(Table(heads, tuple(rows)).to_text())
    facts = provenance("cuda", torch.cuda.get_device_name())
    print(f"copy {copied / 1e9:.0f} GB/s; " + ", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        record = {"provenance": facts, "bandwidth": copied, "method": options.method, "results": results}
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
