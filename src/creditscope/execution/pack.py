"""Pack runs into fleets: equal shapes train as one stack, and a resumed fleet keeps its old composition."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from creditscope.errors import BadFile, CannotWrite
from creditscope.records import RunLog, RunSpec
from creditscope.records.table import visible


def pack(specs: Iterable[RunSpec]) -> list[list[RunSpec]]:
    """Group runs by ``stack_key``, in the order in which the keys first appear.

    Args:
        specs: The runs.
    """
    fleets: dict[str, list[RunSpec]] = {}
    for spec in specs:
        fleets.setdefault(spec.stack_key, []).append(spec)
    return list(fleets.values())


def existing_logs(folder: Path, specs: Iterable[RunSpec]) -> dict[str, RunLog]:
    """Logs of these runs that the folder already holds, by run id.

    Args:
        folder: The output folder.
        specs: The runs.
    """
    found = {}
    for spec in specs:
        path = folder / f"{spec.run_id}.jsonl"
        if path.exists():
            found[spec.run_id] = RunLog.read(path)
    return found


def plan_fleets(folder: Path, specs: Sequence[RunSpec], resume: bool) -> list[list[RunSpec]]:
    """The fleets still to be trained.

    Finished runs are left out. An unfinished run goes on in the fleet it was in, because a bitwise resume
    needs the same company; runs that have not begun are packed anew.

    Args:
        folder: The output folder.
        specs: The runs asked for.
        resume: Whether runs that the folder already holds may be gone on with.
    """
    logs = existing_logs(folder, specs)
    if logs and not resume:
        raise CannotWrite(
            f"the output folder already holds {len(logs)} of these {len(specs)} runs (such as {next(iter(logs))}); "
            f"pass --resume to go on with them, or choose another --out"
        )
    fleets: list[list[RunSpec]] = []
    placed = {run_id for run_id, log in logs.items() if log.end is not None}
    by_id = {spec.run_id: spec for spec in specs}
    for run_id, log in logs.items():
        if run_id in placed:
            continue
        company = log.header.fleet or [run_id]
        fleets.append([by_id.get(other) or _spec_of(folder, other, logs) for other in company])
        placed |= set(company)
    return fleets + pack(spec for spec in specs if spec.run_id not in placed)


def _spec_of(folder: Path, run_id: str, logs: Mapping[str, RunLog]) -> RunSpec:
    """The spec of a run that shares a fleet with one that is resumed, though it was not asked for now."""
    if run_id in logs:
        return logs[run_id].spec
    path = folder / f"{run_id}.jsonl"
    if path.parent != folder or not os.path.isfile(path):  # a log may name anything as its company
        name = visible(run_id, keep="")[:80]
        raise BadFile(f"{name}.jsonl is missing, and a resume needs the whole fleet; restore it, or use another --out")
    spec = RunLog.read(path).spec
    if spec.run_id != run_id:  # file names are made from the spec, so a log that lies about itself must not get there
        raise BadFile(f"{path.name} holds another run than its name says; restore it, or use another --out")
    return spec
