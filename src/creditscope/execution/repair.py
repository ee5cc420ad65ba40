"""Before a begun fleet goes on: set aside what a crash or a bad disk damaged, so that the rest can be recomputed."""

import os
from collections.abc import Sequence
from pathlib import Path

from creditscope.engine.checkpoint import check_owner, check_values, checkpoint_path, read_checkpoint
from creditscope.errors import BadFile, argument
from creditscope.execution.folder import own_log
from creditscope.probes.schedule import expensive_epochs, is_expensive
from creditscope.records import RunLog, RunSpec

DAMAGED = ".damaged"


def repair(folder: Path, fleet: Sequence[RunSpec]) -> list[str]:
    """Set aside checkpoints that cannot be gone on from; nothing is deleted, and the fleet then begins earlier.

    Args:
        folder: The output folder.
        fleet: Every run of the fleet.

    Returns:
        One line for each thing that was set aside.
    """
    said: list[str] = []
    epochs: list[set[int]] = []
    logs = [_log(folder, spec) for spec in fleet]
    for spec, log in zip(fleet, logs, strict=True):
        found = set()
        for path in _files(folder, spec):
            try:
                found.add(_saved(path, spec, log))
            except BadFile as error:
                said.append(f"{error.why}; kept as {_aside(path)}, the fleet goes on from an earlier epoch")
        epochs.append(found)
    epoch = max(set.intersection(*epochs), default=0)
    lacking = [
        log
        for log, found in zip(logs, epochs, strict=True)
        if log is not None and log.end is not None and max(found, default=0) < log.end.epoch
    ]
    if lacking and not said:
        what = f"{lacking[0].name} ended without its last checkpoint"
        said.append(f"{what}; to make it the fleet goes on from epoch {epoch}")
    if epoch == 0:
        return said
    short = [spec.run_id for spec, log in zip(fleet, logs, strict=True) if log is None or _lost(log, epoch)]
    if short:
        said.append(f"{short[0]}.jsonl lost rows that its checkpoint (epoch {epoch}) counts on; the fleet begins again")
        for spec in fleet:
            for path in _files(folder, spec):
                _aside(path)
    for log in logs if not short else ():
        if log is not None:
            check_rows(log, epoch)
    return said


def check_rows(log: RunLog, epoch: int) -> None:
    """Refuse a log that is not whole up to an epoch: every row once, and in order.

    Args:
        log: The log; rows past its end, from the ``probe`` verb, are left alone.
        epoch: Epochs that were trained.
    """
    last = epoch if log.end is None else min(epoch, log.end.epoch)
    epochs = [row.epoch for row in log.epochs if row.epoch <= last]
    probes = [row.epoch for row in log.probes if row.epoch <= last]
    wanted = _probed(log, last)
    if log.end is not None:
        probes = probes[: len(wanted)]
    for kind, found, due in (("epoch", epochs, list(range(last + 1))), ("probe", probes, wanted)):
        if found != due:
            odd = next((got for got, at in zip(found, due, strict=False) if got != at), (found or [0])[-1])
            raise BadFile(
                f"{log.name}: its {kind} rows up to epoch {last} are not one for each epoch where one is due, in order "
                f"(see epoch {odd}); restore the log, or use another ",
                argument("out"),
            )


def _probed(log: RunLog, last: int) -> list[int]:
    """The epochs up to one at which the expensive set was measured."""
    spec = log.spec
    listed = expensive_epochs(spec)
    diverged = log.end.epoch if log.end is not None and log.end.status == "diverged" else None
    return [at for at in range(last + 1) if at != diverged and is_expensive(at, spec.epochs or 0, listed)]


def _saved(path: Path, spec: RunSpec, log: RunLog | None) -> int:
    tensors, metadata = read_checkpoint(path)
    epoch = check_owner(path, metadata, spec)
    check_values(path, tensors, spec, log is not None and ended_early(log, epoch))
    return epoch


def ended_early(log: RunLog, epoch: int) -> bool:
    """Whether a run had ended by an epoch, as diverged or stopped, while its fleet went on."""
    return log.end is not None and log.end.status != "finished" and log.end.epoch <= epoch


def _log(folder: Path, spec: RunSpec) -> RunLog | None:
    path = folder / f"{spec.run_id}.jsonl"
    return own_log(path, spec) if os.path.lexists(path) else None


def _files(folder: Path, spec: RunSpec) -> list[Path]:
    path = checkpoint_path(folder, spec.run_id)
    return [file for file in (path, path.with_name(path.name + ".previous")) if file.exists()]


def _lost(log: RunLog, epoch: int) -> bool:
    """Whether a log lacks its last rows before a checkpoint's epoch; the end row of that epoch comes after it."""
    if log.end is not None:
        return False
    if log.last is None or log.last.epoch < epoch:
        return True
    wanted = _probed(log, epoch)
    return wanted[-1:] == [epoch] and [row.epoch for row in log.probes if row.epoch <= epoch] == wanted[:-1]


def _aside(path: Path) -> str:
    target = path.with_name(path.name + DAMAGED)
    path.replace(target)
    return target.name
