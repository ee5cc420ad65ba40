"""What the reference experiments cost on a GPU: every ResMLP run of `reproduce paper`, full epochs, all in one.

Per-epoch probes, evaluation, final probes, logs and checkpoints are included. Pictures of CIFAR-10's shape stand in
for CIFAR-10 itself: the time does not depend on what they show. With --vit the ViT-Mini runs train at the same time.

    python benchmarks/paper.py [--vit] [--dear protocol|final] [--out benchmarks/results/paper-h200.json]
"""

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
from plain import noise, seconds

from creditscope.execution.local import train
from creditscope.plans.presets import build_specs, preset
from creditscope.records import RunLog
from creditscope.records.provenance import provenance
from creditscope.records.table import Table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--vit", action="store_true")
    parser.add_argument("--dear", choices=("protocol", "final"), default="final")
    parser.add_argument("--epochs", help="instead of the presets' own, to try it out")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = noise()
    changes = {"epochs": options.epochs} if options.epochs else {}
    changes |= {"probe.epochs": []} if options.dear == "final" else {}
    names = ("audit", "penalty", "snapshot", *(("vit",) if options.vit else ()))
    specs = dict.fromkeys(s for name in names for s in build_specs(preset(name), data.spec, 10, changes=changes))
    with tempfile.TemporaryDirectory() as folder:
        logs: list[RunLog] = []
        wall = seconds(
            lambda: logs.extend(train(specs, folder, data=data, device=options.device)), torch.device(options.device)
        )
    fleets = defaultdict(list)
    for log in logs:
        fleets[tuple(log.header.fleet)].append(log)
    rows, results = [], []
    for members in fleets.values():
        spec = members[0].spec
        run_steps = sum(log.last.step for log in members)
        expensive = sum(row.time_probe for log in members for row in log.probes)
        ended = max(log.end.time_total for log in members)
        results.append(
            {"model": spec.model, "terminal_ln": spec.terminal_ln, "epochs": spec.epochs, "runs": len(members),
             "run_steps": run_steps, "expensive_seconds": expensive, "ended_after": ended,
             "path": members[0].header.path}
        )  # fmt: skip
        ln = "" if spec.terminal_ln else ", no terminal LN"
        rows.append(
            (f"{spec.model}{ln}", str(spec.epochs), str(len(members)), members[0].header.path, f"{run_steps:,}",
             f"{expensive:.0f}", f"{ended:.0f}")
        )  # fmt: skip
    heads = ("model", "epochs", "runs", "path", "run-steps", "expensive probes s", "ended after s")
    print(Table(heads, tuple(rows)).to_text())
    steps = sum(result["run_steps"] for result in results)
    expensive = sum(result["expensive_seconds"] for result in results)
    print(f"{len(logs)} runs, {steps:,} run-steps in {wall:.0f} s: {1e6 * wall / steps:.1f} µs a run-step overall")
    print(
        f"of these {expensive:.0f} s in expensive probes ({options.dear}), "
        f"{1e6 * (wall - expensive) / steps:.1f} µs without them"
    )
    facts = provenance(options.device, torch.cuda.get_device_name() if options.device == "cuda" else None)
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        record = {"provenance": facts, "dear": options.dear, "wall": wall, "fleets": results}
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
