"""How long the demo takes to train on this machine, as `creditscope train --preset demo` does it.

python benchmarks/demo.py [--out benchmarks/results/demo-cpu.json]
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch

from creditscope.data import load_data
from creditscope.execution.local import train
from creditscope.plans.presets import build_specs, preset
from creditscope.records.provenance import provenance
from creditscope.records.table import Table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = load_data("fashion-mini")
    specs = build_specs(preset("demo"), data.spec, data.classes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        logs = train(specs, folder, device="cpu")
        wall = time.perf_counter() - began
    path = logs[0].header.path or ""
    used = time.process_time() + sum(os.times()[2:4])
    result = {"runs": len(logs), "path": path, "wall_s": wall, "cpu_s": used}
    print(Table(("runs", "path", "wall s", "CPU s"), ((str(len(logs)), path, f"{wall:.1f}", f"{used:.1f}"),)).to_text())
    facts = provenance() | {"threads": str(torch.get_num_threads()), "load_average": f"{os.getloadavg()[0]:.1f}"}
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        options.out.write_text(json.dumps({"provenance": facts, "results": [result]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
