"""Before a begun fleet goes on: set aside what a crash or a bad disk damaged, so that the rest can be recomputed."""

from collections.abc import Sequence
from pathlib import Path

from creditscope.engine.checkpoint import checkpoint_path, read_checkpoint, saved_epoch
from creditscope.errors import BadFile
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
    for spec in fleet:
        found = set()
        for path in _files(folder, spec):
            try:
                found.add(saved_epoch(path, read_checkpoint(path)[1]))
            except BadFile as error:
                said.append(
                    f"{error}".split(";")[0] + f"; kept as {_aside(path)}, the fleet goes on from an earlier epoch"
                )
        epochs.append(found)
    epoch = max(set.intersection(*epochs), default=0)
    short = [spec.run_id for spec in fleet if epoch > 0 and not _reaches(folder, spec, epoch)]
    if short:
        said.append(f"{short[0]}.jsonl lost rows that its checkpoint (epoch {epoch}) counts on; the fleet begins again")
        for spec in fleet:
            for path in _files(folder, spec):
                _aside(path)
    return said


def _files(folder: Path, spec: RunSpec) -> list[Path]:
    path = checkpoint_path(folder, spec.run_id)
    return [file for file in (path, path.with_name(path.name + ".previous")) if file.exists()]


def _reaches(folder: Path, spec: RunSpec, epoch: int) -> bool:
    """Whether a log holds every row up to a checkpoint's epoch; at the last one, that includes the end row."""
    path = folder / f"{spec.run_id}.jsonl"
    if not path.exists():
        return False
    log = RunLog.read(path)
    if log.end is not None:
        return True
    return log.last is not None and log.last.epoch >= epoch and epoch < (spec.epochs or 0)


def _aside(path: Path) -> str:
    target = path.with_name(path.name + DAMAGED)
    path.replace(target)
    return target.name
