"""Write performance.md: what the benchmarks measured and what was wanted of them; no number is typed here."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from page_data import DOCS, NOT_MEASURED, markdown_table, provenance_line, share
from paper_time import command_seconds, paper_fleets, paper_seconds, paper_section, paper_steps

SCRIPT = "make_performance.py"
BENCHMARKS = DOCS.parent / "benchmarks" / "results"
# One command a results file; what a GPU is needed for says so in its file's name.
COMMANDS = {
    "gpu-h200": "python benchmarks/gpu.py --runs 1,128 --rounds 2 --out benchmarks/results/gpu-h200.json",
    "paper-h200": "python benchmarks/paper.py --out benchmarks/results/paper-h200.json",
    "probes-h200": "python benchmarks/probes.py --device cuda --out benchmarks/results/probes-h200.json",
    "growth-h200": "python benchmarks/growth.py --device cuda --out benchmarks/results/growth-h200.json",
    "fleet-cpu": "python benchmarks/fleet.py --out benchmarks/results/fleet-cpu.json",
    "demo-cpu": "python benchmarks/demo.py --out benchmarks/results/demo-cpu.json",
    "probes-cpu": "python benchmarks/probes.py --out benchmarks/results/probes-cpu.json",
    "growth-cpu": "python benchmarks/growth.py --out benchmarks/results/growth-cpu.json",
    "start-cpu": "python benchmarks/start.py --out benchmarks/results/start-cpu.json",
    "audit-scale": "python benchmarks/audit_scale.py --out benchmarks/results/audit-scale.json",
}
INTRO = f"""\
# Performance

Speed is given as ratios; both sides are timed in one run on one machine. The command above a table prints it and leaves
a file in `benchmarks/results/`; `docs/{SCRIPT}` writes the table here from that file, and so the words *met* and
*not met*. `make bench` runs those that need no GPU.

"""
NOTE = (
    f"<!-- Written by `python docs/{SCRIPT}` from benchmarks/results and results/cifar10-h200. "
    "Change the script, not this page. -->"
)
JUDGED = """\
Where several values belong to a target, the worst is judged. There are two plain loops: one AdamW a block, as local
learning is mostly written, and the faster one with a single AdamW for the whole net.

"""


class Target(NamedTuple):
    """Something that was wanted.

    Args:
        what: In words.
        wanted: The bound, in words.
        measured: In words; None where its file is not there.
        met: Whether the bound holds; None where it was not measured.
        file: Where the numbers are.
    """

    what: str
    wanted: str
    measured: str | None
    met: bool | None
    file: str


@cache
def record(name: str) -> dict[str, Any] | None:
    """A results file; None where it was not made."""
    path = BENCHMARKS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def at_most(what: str, file: str, bound: float, values: Sequence[float], shown: Callable[[float], str]) -> Target:
    """The largest of some values must not exceed a bound."""
    return _target(what, file, f"≤ {shown(bound)}", max, values, lambda worst: worst <= bound, shown)


def at_least(what: str, file: str, bound: float, values: Sequence[float], shown: Callable[[float], str]) -> Target:
    """The smallest of some values must reach a bound."""
    return _target(what, file, f"≥ {shown(bound)}", min, values, lambda worst: worst >= bound, shown)


def _target(
    what: str,
    file: str,
    wanted: str,
    worst: Callable[[Sequence[float]], float],
    values: Sequence[float],
    holds: Callable[[float], bool],
    shown: Callable[[float], str],
) -> Target:
    if not values:
        return Target(what, wanted, None, None, file)
    return Target(what, wanted, shown(worst(values)), holds(worst(values)), file)


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.0f}×" if value >= 20 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def plain_seconds(value: float) -> str:
    """Seconds."""
    return f"{value:.0f} s" if value >= 20 else f"{value:.2f} s" if value < 1 else f"{value:.1f} s"


def rows(name: str, key: str = "results") -> list[dict[str, Any]]:
    """The rows of a results file; none where it was not made."""
    found = record(name)
    return [] if found is None else found[key]


def fastest(runs: int, matmul: str) -> list[dict[str, Any]]:
    """The faster of the two ways to run a step, compiled and not."""
    found = [row for row in rows("gpu-h200") if row["runs"] == runs and row["matmul"] == matmul]
    return [min(found, key=lambda row: row["fleet"])] if found else []


def cpu_case(name: str) -> list[dict[str, Any]]:
    """One kind of work of the CPU benchmark."""
    return [row for row in rows("fleet-cpu") if row.get("case") == name]


def gain(row: Mapping[str, Any]) -> float:
    """The plain loop over the way that the calibration chose."""
    return row["seconds"]["plain"] / row["seconds"][row["chosen"]]


def forecast(row: Mapping[str, Any]) -> float:
    """How far a forecast of memory is off, either way."""
    return abs(row["predicted"] / row["measured"] - 1)


def targets() -> list[Target]:
    """Everything that was wanted, in order."""
    gpu, fleet, paper = "gpu-h200", "fleet-cpu", "results/cifar10-h200"
    wall, resmlp = (paper_seconds(), paper_steps("resmlp")) if paper_fleets() else (None, None)
    whole = command_seconds()
    made = []
    for matmul in ("tf32", "float32"):
        for kind, text in (("plain", "an AdamW a block"), ("plain_one", "one AdamW")):
            loop = [row[kind] / row["fleet"] for row in fastest(128, matmul)]
            what = f"GPU, 128 runs, {matmul}: plain loop ({text})/fleet, per run-step"
            made.append(at_least(what, gpu, 150, loop, times))
        over = [row["fleet"] / row["limit"] for row in fastest(128, matmul)]
        made.append(at_most(f"GPU, 128 runs, {matmul}: fleet/limit of the GPU", gpu, 2.5, over, times))
        alone = [row["plain_one"] / row["fleet"] for row in fastest(1, matmul)]
        made.append(at_least(f"GPU, 1 run, {matmul}: plain loop (one AdamW)/fleet", gpu, 10, alone, times))
    lone = record("paper-h200")
    steps = sum(row["run_steps"] for row in lone["fleets"]) if lone else 0
    made.append(
        at_most(
            "GPU, every ResMLP run of reproduce paper, final probes, without ViT-Mini: time a run-step, all included",
            *("paper-h200", 30, [1e6 * lone["wall"] / steps] if lone else [], lambda value: f"{value:.0f} µs"),
        )
    )
    each = [1e6 * wall / resmlp] if wall and resmlp else []
    made += [
        at_most(
            "GPU, all of reproduce paper: time a ResMLP run-step, probes, evaluation and ViT-Mini's turns included",
            *(paper, 30, each, lambda value: f"{value:.0f} µs"),
        ),
        at_most("GPU, the same: its training, ViT-Mini included", paper, 300, [wall] if wall else [], plain_seconds),
        at_most("GPU, the same: the whole command", paper, 300, [whole] if whole else [], plain_seconds),
        at_most("CPU: the demo's training", "demo-cpu", 60, [row["wall_s"] for row in rows("demo-cpu")], plain_seconds),
        at_least("CPU, the demo's work: plain loop/chosen way", fleet, 1.5, [*map(gain, cpu_case("demo"))], times),
        at_least("CPU, 64 tiny nets: plain loop/chosen way", fleet, 8, [*map(gain, cpu_case("tiny"))], times),
        at_least(
            "CPU, any work: plain loop/chosen way", fleet, 1, [gain(r) for r in rows(fleet) if "case" in r], times
        ),
    ]
    for device, name in (("GPU", "h200"), ("CPU", "cpu")):
        file = f"probes-{name}"
        shares = [row["share"] for row in rows(file, "epochs") if row["preset"] == "audit"]
        made.append(at_most(f"{device}, CIFAR-10's shape: probes of every epoch/epoch", file, 0.05, shares, share))
        looks = [row["ratio"] for row in rows(file, "looks") if row["probe_n"] == row["batch"]]
        made.append(at_most(f"{device}, a user's model: one per-epoch observation/one step", file, 3, looks, times))
    start = rows("start-cpu")
    torchless = at_most("creditscope --help", "start-cpu", 0.3, [r["median_wall_s"] for r in start], plain_seconds)
    made.append(torchless._replace(met=torchless.met and not any(r["loads_torch"] for r in start) if start else None))
    audits = [row["best_cpu_s"] for row in rows("audit-scale") if row["logs"] == 1000]
    made.append(at_most("audit of 1,000 logs on one core, CPU time", "audit-scale", 10, audits, plain_seconds))
    grown = [rows("audit-scale")[-1]["peak_mib"] / rows("audit-scale")[0]["peak_mib"]] if rows("audit-scale") else []
    made.append(at_most("the same: memory over that of a tenth of the logs", "audit-scale", 1.2, grown, times))
    for device, name in (("GPU", "h200"), ("CPU", "cpu")):
        off = [forecast(row) for row in rows(f"growth-{name}")]
        made.append(at_most(f"{device}: forecast of the peak memory is off by", f"growth-{name}", 0.2, off, share))
    return made


def lone_table(found: dict[str, Any]) -> str:
    """The fleets of the ResMLP runs, trained without ViT-Mini at the same time."""
    lines = [
        (
            "resmlp" if row["terminal_ln"] else "resmlp, no terminal LN", str(row["runs"]), str(row["epochs"]),
            f"{row['run_steps']:,}", f"{row['ended_after']:.0f}", f"{row['expensive_seconds']:.0f}",
        )
        for row in found["fleets"]
    ]  # fmt: skip
    steps = sum(row["run_steps"] for row in found["fleets"])
    whole = f"{found['wall']:.0f} s in all, {1e6 * found['wall'] / steps:.0f} µs a run-step."
    heads = ("fleet", "runs", "epochs", "run-steps", "s to its end", "s in final probes")
    note = f" {found['note'][0].upper()}{found['note'][1:]}." if "note" in found else ""
    return f"{markdown_table(heads, lines)}\n\n{whole}{note}"


def section(title: str, about: str, name: str, body: Callable[[dict[str, Any]], str]) -> str:
    """One benchmark: its command, its table, where it ran."""
    found = record(name)
    text = f"## {title}\n\n{about.strip()}\n\n```console\n$ {COMMANDS[name]}\n```\n\n"
    if found is None:
        return text + f"`benchmarks/results/{name}.json`: {NOT_MEASURED}.\n\n"
    return text + f"{body(found)}\n\n{provenance_line(found['provenance'])}\n\n"


def gpu_table(found: Mapping[str, Any]) -> str:
    heads = (
        *("runs", "products in", "path", "fleet µs/run-step", "plain loop/fleet", "the same, an AdamW a block"),
        *("fleet/limit", "first steps s"),
    )
    lines = [
        (
            str(row["runs"]), row["matmul"], "compiled" if row["fused"] else "", f"{1e6 * row['fleet']:.1f}",
            times(row["plain_one"] / row["fleet"]), times(row["plain"] / row["fleet"]),
            times(row["fleet"] / row["limit"]), f"{row['start']:.1f}",
        )
        for row in found["results"]
    ]  # fmt: skip
    return markdown_table(heads, lines)


def fleet_table(found: Mapping[str, Any]) -> str:
    known = [row for row in found["results"] if "case" in row]
    if not known:
        return f"The file is an older benchmark's: {NOT_MEASURED}."
    ways = ("stacked", "processes", "fused")
    lines = []
    for row in known:
        took = row["seconds"]
        ratios = [times(took["plain"] / took[way]) if way in took else NOT_MEASURED for way in ways]
        lines.append((row["about"], *ratios, row["chosen"], row["best"]))
    return markdown_table(("work", *(f"plain loop/{way}" for way in ways), "chosen", "fastest"), lines)


def demo_table(found: Mapping[str, Any]) -> str:
    lines = [(str(row["runs"]), row["path"], f"{row['wall_s']:.0f}", f"{row['cpu_s']:.0f}") for row in found["results"]]
    return markdown_table(("runs", "path", "wall s", "CPU s"), lines)


def probes_table(found: Mapping[str, Any]) -> str:
    epochs = [
        (row["preset"], row["data"], str(row["runs"]), str(row["probe_n"]), share(row["share"]),
         share(row["test"] / row["epoch"]))
        for row in found["epochs"]
    ]  # fmt: skip
    looks = [(row["model"], str(row["batch"]), str(row["probe_n"]), times(row["ratio"])) for row in found["looks"]]
    if found["cockpit"] is None:
        looks.append(("the chain, a step that Cockpit tracks", "", "", "Cockpit was not installed"))
    else:
        looks += [
            (f"the chain, a step that Cockpit tracks ({row['level']})", str(row["batch"]), str(row["batch"]),
             times(row["ratio"]))
            for row in found["cockpit"]
        ]  # fmt: skip
    first = ("preset", "data", "runs", "probe samples", "probes/epoch", "evaluation/epoch")
    return (
        markdown_table(first, epochs)
        + "\n\n"
        + markdown_table(("model", "batch", "samples observed", "observation/plain step"), looks)
    )


def growth_table(found: Mapping[str, Any]) -> str:
    heads = ("axis", "value", "µs/run-step", "measured MiB", "forecast MiB", "forecast/measured")
    lines = [
        (
            row["axis"], str(row["value"]), f"{1e6 * row['seconds']:.1f}", f"{row['measured'] / 2**20:.0f}",
            f"{row['predicted'] / 2**20:.0f}", f"{row['predicted'] / row['measured']:.2f}",
        )
        for row in found["results"]
    ]  # fmt: skip
    later = "\n\nThe forecasts were made after the measurement (`--predict`)." if "predicted_later" in found else ""
    return markdown_table(heads, lines) + later


def start_table(found: Mapping[str, Any]) -> str:
    lines = [
        (f"{row['best_wall_s']:.2f}, {row['median_wall_s']:.2f}", f"{row['best_cpu_s']:.2f}, {row['median_cpu_s']:.2f}",
         "yes" if row["loads_torch"] else "no")
        for row in found["results"]
    ]  # fmt: skip
    return markdown_table(("wall s: best, median", "CPU s: best, median", "loads torch"), lines)


def audit_table(found: Mapping[str, Any]) -> str:
    lines = [
        (f"{row['logs']:,}", f"{row['mib_of_logs']:.0f}", f"{row['best_wall_s']:.1f}", f"{row['best_cpu_s']:.1f}",
         times(row["best_cpu_s"] / row["best_json_cpu_s"]), f"{row['peak_mib']:.0f}")
        for row in found["results"]
    ]  # fmt: skip
    heads = ("logs", "MiB of logs", "best wall s", "best CPU s", "over Python's json alone", "peak MiB")
    return markdown_table(heads, lines)


def summary() -> str:
    """What was wanted and what was measured."""
    outcome = {True: "met", False: "NOT met", None: NOT_MEASURED}
    lines = [(t.what, t.wanted, t.measured or "–", outcome[t.met], t.file) for t in targets()]
    return markdown_table(("what", "wanted", "measured", "so it is", "from"), lines)


def build() -> str:
    """The page."""
    probes = """
First: what the engine measures for every run after every epoch (accuracy apart) over the steps of that epoch. Then one
per-epoch observation of `creditscope.watch` at a plain model over one plain step (forward, backward, update); where
Cockpit is installed, also what it does at each step of the same chain."""
    growth = """
One axis at a time moves away from ResMLP of width 256 with 4 blocks, batch 128, DFA. The forecast is made from shapes
before the fleet is built; it splits fleets to fit the device. On a CPU the expensive probes of one run are in
it, and outweigh small fleets; on a GPU they take a share of its memory, whatever the fleet, and are not."""
    parts = [
        INTRO,
        "## What was wanted\n\n",
        JUDGED,
        summary() + "\n\n",
        section(
            "A fleet on a GPU",
            "The limit is AdamW's memory traffic at the measured copy bandwidth plus the step's arithmetic at the\n"
            "measured rate of a large product in the same precision.",
            *("gpu-h200", gpu_table),
        ),
        paper_section() + "\n",
        section(
            "Runs on two CPU cores",
            "The plain loop trains one run at a time; *chosen* is what the calibration of `creditscope train` picks.",
            *("fleet-cpu", fleet_table),
        ),
        section(
            "The ResMLP runs by themselves",
            "Full epochs, per-epoch probes, evaluation and final probes; random pictures of CIFAR-10's shape.",
            *("paper-h200", lone_table),
        ),
        section("The demo", "Its 21 runs, trained as `make demo` does.", "demo-cpu", demo_table),
        section("What measuring costs, on a CPU", probes, "probes-cpu", probes_table),
        section("What measuring costs, on a GPU", "The same on a GPU.", "probes-h200", probes_table),
        section("How cost grows, on a CPU", growth, "growth-cpu", growth_table),
        section("How cost grows, on a GPU", "The same on a GPU.", "growth-h200", growth_table),
        section("The front door", "`creditscope --help` in a process of its own.", "start-cpu", start_table),
        section("Many logs", "`creditscope audit` on logs of 100 epochs, on one core.", "audit-scale", audit_table),
    ]
    return f"{NOTE}\n\n{''.join(parts).strip()}\n"


if __name__ == "__main__":
    (DOCS / "performance.md").write_text(build(), encoding="utf-8")
