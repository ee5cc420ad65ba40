"""Pack the logs of a zoo for this repository, and write the folder's README from what the logs say.

    python results/pack_zoo.py ZOO results/zoo-h200    pack ZOO/*/runs/*.jsonl, then write the README
    python results/pack_zoo.py results/zoo-h200        write the README again

Left out are single null values that no verdict reads: those of baselines, which are never judged, of the published
index, and of the parameter gradient where the credit itself has a null. Their means, deviations and p values stay.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from creditscope.records import RunLog
from creditscope.records.load import load_logs
from creditscope.records.table import Table


def lean(text: str) -> str:
    """A log without the null values that no verdict reads.

    Args:
        text: Its lines.
    """
    rows = [json.loads(line) for line in text.splitlines()]
    spec, family = rows[0]["spec"], rows[0]["rule"]["family"]
    unread = {"null_published"} if family != "signal" else {"null_published", "gradient_null"}
    if spec["train_last"] == 0:
        unread |= {"null", "gradient_null"}
    return "".join(f"{json.dumps(_without(row, unread), ensure_ascii=False)}\n" for row in rows)


def _without(row: dict[str, Any], unread: set[str]) -> dict[str, Any]:
    if row["kind"] != "probe":
        return row
    return {
        key: {**value, "draws": None} if key in unread and value is not None else value for key, value in row.items()
    }


def pack(zoo: Path, folder: Path) -> None:
    """Compress every log of every part, the same bytes every time.

    Args:
        zoo: What ``creditscope reproduce zoo`` wrote.
        folder: Where the packed logs go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(zoo.glob("*/runs/*.jsonl")):
        content = lean(path.read_text(encoding="utf-8")).encode()
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))


def readme(folder: Path) -> str:
    """The README of a folder, computed from its logs.

    Args:
        folder: Of packed logs.
    """
    logs = load_logs(folder).logs
    size = sum(path.stat().st_size for path in folder.glob("*.gz")) / 1e6
    made = Counter(tuple(sorted(log.header.provenance.items())) for log in logs)
    ended = Counter(log.end.status if log.end is not None else "unfinished" for log in logs)
    parts = [
        f"# {folder.name}",
        "Run logs of the zoo, `creditscope reproduce zoo --device cuda`, one gzip-compressed JSONL file a run. How "
        "each learning rate was chosen stands in every log (`spec.tuned`); the runs that chose are not kept. "
        "`python results/pack_zoo.py` packs the logs and writes this page; it says which null values are left out.",
        f"{len(logs)} runs, {size:.1f} MB: {', '.join(f'{n} {status}' for status, n in sorted(ended.items()))}.",
        _tasks(logs).to_markdown().strip(),
        *(f"- {count} runs: {', '.join(f'{key} {value}' for key, value in facts)}" for facts, count in made.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _tasks(logs: Sequence[RunLog]) -> Table:
    by_task: dict[tuple[str, str, str], list[RunLog]] = {}
    for log in logs:
        spec = log.spec
        name = spec.data.name if spec.data is not None else "unknown"
        by_task.setdefault((spec.model_text or "unknown", name, str(spec.epochs)), []).append(log)
    rows = []
    for task, mine in sorted(by_task.items()):
        rates = Counter(f"{log.spec.optimiser.lr:g}" for log in mine if log.spec.optimiser is not None)
        seconds = max(log.end.time_total or 0.0 for log in mine if log.end is not None)
        chosen = ", ".join(f"{rate}: {count}" for rate, count in sorted(rates.items(), key=lambda pair: float(pair[0])))
        rows.append((*task, str(len({log.spec.method for log in mine})), str(len(mine)), chosen, f"{seconds:.0f} s"))
    columns = ("model", "data", "epochs", "methods", "runs", "learning rates (runs)", "longest run")
    return Table(columns, tuple(rows))


if __name__ == "__main__":
    *raw, packed = map(Path, sys.argv[1:])
    if raw:
        pack(raw[0], packed)
    (packed / "README.md").write_text(readme(packed), encoding="utf-8")
