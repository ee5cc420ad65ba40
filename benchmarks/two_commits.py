"""Two commits of the package side by side: the same runs, trained by each in turn, with times and final numbers.

    python benchmarks/two_commits.py OLD/src NEW/src --data-dir DIR --out DIR [--preset audit --epochs 10]

Each side trains in a process of its own. The table says whether both give the same accuracies, and how long each took.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TRAIN = """
import json, sys, time
began = time.monotonic()
import creditscope as cs
try:
    from creditscope.plans.presets import build_specs, preset
    from creditscope.execution.local import train
except ImportError:
    from creditscope.sweeps.presets import build_specs, preset
    from creditscope.sweeps.local import train
from creditscope.data import load_data
from pathlib import Path
options = json.loads(sys.argv[1])
runs = []
for name in options["presets"]:
    chosen = preset(name)
    data = load_data(chosen.data, Path(options["data_dir"]))
    changes = {"epochs": str(options["epochs"])} if options["epochs"] else {}
    runs += build_specs(chosen, data.spec, data.classes, None, options["seeds"], changes)
ready = time.monotonic()
logs = train(list(dict.fromkeys(runs)), options["out"], data=data, device=options["device"])
done = time.monotonic()
end = {f"{log.spec.run_id}": [log.end.test_accuracy, log.last.hidden.median[-1]] for log in logs}
print("RESULT" + json.dumps({"start": ready - began, "train": done - ready, "runs": end}))
"""


def side(src: str, options: dict, out: Path) -> dict:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([src, os.environ.get("PYTHONPATH", "")])}
    told = json.dumps({**options, "out": str(out)})
    done = subprocess.run([sys.executable, "-c", TRAIN, told], capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(lines[0].removeprefix("RESULT"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--presets", default="audit,penalty,snapshot,vit")
    parser.add_argument("--seeds", default="42,123,456")
    parser.add_argument("--epochs", type=int, default=None, help="default: the presets' own")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    options = {
        "presets": given.presets.split(","),
        "data_dir": given.data_dir,
        "epochs": given.epochs,
        "seeds": [int(seed) for seed in given.seeds.split(",")],
        "device": given.device,
    }
    found = {}
    for name, src in (("old", given.old), ("new", given.new)):
        found[name] = side(src, options, given.out / name)
        print(f"{name}: start {found[name]['start']:.1f} s, train {found[name]['train']:.1f} s", flush=True)
    old, new = found["old"]["runs"], found["new"]["runs"]
    print(f"the same {len(old)} run ids: {set(old) == set(new)}")
    for at, what in enumerate(("accuracy", "||h_L|| over its size")):
        gaps = [abs(old[run][at] - new[run][at]) / (1 if at == 0 else old[run][at]) for run in old if run in new]
        print(f"{what}: largest difference {max(gaps):.3g}, equal in {sum(gap == 0 for gap in gaps)} of {len(gaps)}")
    print(f"training time new/old {found['new']['train'] / found['old']['train']:.3f}")
    (given.out / "two_commits.json").write_text(json.dumps({"options": options, **found}, indent=1))


if __name__ == "__main__":
    main()
