"""What a step of each rule costs against backprop's: seconds a run-step and bytes a run, alone on the device.

    python benchmarks/zoo_cost.py --device cuda --data-dir DATA --out benchmarks/results/zoo-cost-h200.json
    python benchmarks/zoo_cost.py --part resmlp --small --out /tmp/cost.json

Each rule trains as a fleet of its own, three seeds, so that no other rule shares its time. Best of three timings.
"""

import argparse
import json
from pathlib import Path

import torch

from creditscope.engine.estimate import step_seconds
from creditscope.engine.fleet import Fleet
from creditscope.engine.memory import fleet_bytes
from creditscope.engine.start import default_model
from creditscope.execution.context import pick_device
from creditscope.plans.presets import SEEDS
from creditscope.plans.zoo import RATES
from creditscope.records import Tuning
from creditscope.records.provenance import provenance
from creditscope.studies.zoo import Planned, plan_zoo

TIMES = 3
# Three seeds of a method: how its rate was chosen is of no matter here.
ANY = Tuning(rates=RATES, held_out=1, seed=0, epochs=1, accuracy=(None,) * len(RATES))


def costs(planned: Planned, device: str) -> dict[str, dict[str, float]]:
    """By method, twins left out: a frozen block costs what its rule does or less."""
    found = {}
    for method in planned.methods:
        if "@" in method:
            continue
        part, data = planned.part, planned.data
        specs = part.runs(data.spec, data.classes, method, ANY, RATES[0])
        fleet = Fleet(specs, data, default_model, pick_device(device))
        seconds = min(step_seconds(fleet) for _ in range(TIMES)) / len(specs)
        held = fleet_bytes(specs, fleet.device.type) / len(specs)
        found[method] = {"seconds": seconds, "bytes": held}
        print(f"{part.name} {method}: {1e6 * seconds:.0f} µs a run-step, {held / 2**20:.0f} MiB a run", flush=True)
        del fleet
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--part", action="append", help="some parts; default: all")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    planned = plan_zoo(told.small, told.part, None, told.data_dir)
    device = pick_device(told.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else None
    content = {
        "seeds": len(SEEDS),
        "provenance": provenance(device.type, name),
        "costs": {f"{each.part.name} on {each.data.name}": costs(each, told.device) for each in planned},
    }
    told.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
