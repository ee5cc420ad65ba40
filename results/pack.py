"""Pack the raw logs of a folder for this repository, and write the folder's README from what the logs say.

    python results/pack.py RAW results/cifar10-h200   pack RAW/*.jsonl (of a study: STUDY/runs), then write the README
    python results/pack.py results/cifar10-h200       write the README again

Packing loses nothing: ``gzip -d`` gives back the bytes that the training wrote. The files carry no time stamp of their
own, so the same logs give the same bytes.
"""

import gzip
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from creditscope.cli.train import parse_settings
from creditscope.plans.presets import build_specs, preset
from creditscope.records import RunLog
from creditscope.records.labels import labels_of
from creditscope.records.load import load_logs
from creditscope.records.log import wall_seconds
from creditscope.records.table import Table
from creditscope.studies.reproduce import study


def pack(raw: Path, folder: Path) -> None:
    """Compress every log of a folder, the same bytes every time."""
    for path in sorted(raw.glob("*.jsonl")):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def commands(folder: Path) -> list[dict[str, Any]]:
    """The commands that trained the runs of a folder."""
    loaded: list[dict[str, Any]] = yaml.safe_load((folder / "commands.yaml").read_text(encoding="utf-8"))
    return loaded


def run_ids(command: dict[str, Any], logs: Sequence[RunLog]) -> set[str]:
    """The ids of the runs that a command trains on the data of these logs."""
    spec = logs[0].spec
    assert spec.data is not None
    assert spec.classes is not None
    settings = parse_settings([f"{key}={value}" for key, value in command.get("set", {}).items()])
    names = study(command["study"]).presets if "study" in command else (command["preset"],)
    return {
        made.run_id
        for name in names
        for made in build_specs(preset(name), spec.data, spec.classes, command.get("rules"), changes=settings)
    }


def readme(folder: Path) -> str:
    """The README of a folder, computed from its logs."""
    logs = sorted(load_logs(folder).logs, key=lambda log: (log.spec.method, log.spec.seed))
    parts = [
        f"# {folder.name}",
        "Run logs with everything that was measured, one gzip-compressed JSONL file a run "
        "(`creditscope audit`, `figure` and `report` read them as they are; `gzip -d` gives the plain file). "
        "`python results/pack.py` writes this page from the logs: only the commands are typed by hand, and the tests "
        "check that each command gives exactly these run ids.",
        f"{len(logs)} runs; seeds {_each(log.spec.seed for log in logs)}; "
        f"{sum(path.stat().st_size for path in folder.glob('*.gz')) / 1e6:.1f} MB.",
        "## Where they come from",
        _bullets(logs),
        "## Commands and runs",
        *(_command(command, _of(command, logs)) for command in commands(folder)),
        "## What falls short",
        _shortfalls(logs),
    ]
    return "\n\n".join(parts) + "\n"


def _of(command: dict[str, Any], logs: Sequence[RunLog]) -> list[RunLog]:
    wanted = run_ids(command, logs)
    return [log for log in logs if log.spec.run_id in wanted]


def _bullets(logs: Sequence[RunLog]) -> str:
    data = logs[0].spec.data
    assert data is not None
    facts = {
        name: _each(log.header.provenance.get(name, "not stated") for log in logs)
        for name in ("device_name", "device", "torch", "numpy", "python", "system", "creditscope")
    }
    lines = [f"- {name.replace('_', ' ')}: {value}" for name, value in facts.items()]
    if facts["creditscope"] == "unknown":
        lines[-1] += " (run from a source tree that was not installed)"
    paths = Counter(str(log.header.path) for log in logs)
    lines.append("- how the fleets ran: " + "; ".join(f"{path} ({n} runs)" for path, n in paths.items()))
    lines.append(f"- data: {data.name}, {data.n_train} training and {data.n_test} test samples of shape {data.shape}")
    lines.append(f"- SHA-256 of the training split: `{data.hash_train}`")
    lines.append(f"- SHA-256 of the test split: `{data.hash_test}`")
    same = {log.spec.data for log in logs} == {data}
    lines.append(f"- every run states the same data: {'yes' if same else 'NO'}")
    return "\n".join(lines)


def _command(command: dict[str, Any], logs: Sequence[RunLog]) -> str:
    parts = ["creditscope reproduce", command["study"]] if "study" in command else []
    parts += ["creditscope train --preset", command["preset"]] if "preset" in command else []
    parts += ["--rules", ",".join(command["rules"])] if "rules" in command else []
    parts += [f"--set '{key}={value}'" for key, value in command.get("set", {}).items()]
    parts.append(f"--device cuda --data-dir DATA --out {'STUDY' if 'study' in command else 'RAW'}")
    trained = wall_seconds(logs)
    ran = "a time that is not stated" if trained is None else f"{trained:.0f} s of wall-clock time"
    ran += f"; the whole command took {command['seconds']} s" if "seconds" in command else ""
    cells: dict[str, list[RunLog]] = {}
    for log in logs:
        cells.setdefault(log.spec.cell_key, []).append(log)
    labels = labels_of([runs[0].spec for runs in cells.values()])
    table = Table(
        ("method", "seeds", "planned epochs", "epochs logged", "status", "expensive probes at epochs", "matmul"),
        tuple(
            (
                label,
                _each(log.spec.seed for log in runs),
                _each(log.spec.epochs for log in runs),
                _each(log.last.epoch if log.last else None for log in runs),
                _each(log.end.status if log.end else "no end row" for log in runs),
                _each(" ".join(str(probe.epoch) for probe in log.probes) for log in runs),
                _each(log.spec.matmul for log in runs),
            )
            for label, runs in zip(labels, cells.values(), strict=True)
        ),
    )
    return "\n\n".join(
        [
            f"### {command['about']}",
            f"```console\n$ {' '.join(parts)}\n```",
            f"{len(logs)} runs; training took {ran}.",
            table.to_markdown(),
        ]
    )


def _shortfalls(logs: Sequence[RunLog]) -> str:
    unfinished = [log for log in logs if not log.finished]
    found = [
        f"- {log.name}: stopped after epoch {log.last.epoch if log.last else 0} of {log.spec.epochs}; "
        "it has no end row and is read as unfinished"
        for log in unfinished
    ]
    found += [f"- {log.name}: {problem}" for log in logs for problem in log.problems]
    tf32 = sum(log.spec.matmul == "tf32" for log in logs)
    if tf32:
        found.append(
            f"- {tf32} of {len(logs)} runs used TF32 matrix products in training and for the test accuracy, the others "
            "float32; norms, cosines and all other probes never use TF32"
        )
    return "\n".join(found) or "Nothing: every run finished."


def _each(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values))


def main() -> None:
    """Pack, or only write the README."""
    *raw, folder = (Path(argument) for argument in sys.argv[1:])
    for source in raw:
        pack(source, folder)
    (folder / "README.md").write_text(readme(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
