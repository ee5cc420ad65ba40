"""The output folder: made, locked, and the logs that it holds already, each of the run that its name says."""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from creditscope.errors import BadFile, CannotWrite, argument
from creditscope.records import HeaderRow, RunLog, RunSpec
from creditscope.records.files import open_own, remove_parts
from creditscope.records.table import visible

# Folders for what lives no longer than a training; whoever holds the output folder owns them.
SCRATCH = ".creditscope-scratch-"


def open_folder(folder: Path) -> Path:
    """The output folder, made if need be.

    Args:
        folder: Where it is wanted.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = f": cannot be made ({error.strerror}); choose a folder you can write"
        raise CannotWrite(argument("out", folder.name), said) from None
    return folder


@contextmanager
def hold(folder: Path) -> Iterator[IO[bytes]]:
    """Hold a folder while writing: two writers would tear each other's logs. What a killed one left there goes.

    Args:
        folder: The folder; an empty file is left there.
    """
    out = argument("out", folder.name)
    try:
        file: IO[bytes] = os.fdopen(open_own(folder / ".lock", create=True), "rb")
    except OSError as error:
        raise CannotWrite(out, f": cannot write there ({error.strerror}); choose another folder") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotWrite(out, ": another creditscope is training there; wait or choose another") from None
        remove_parts(folder)
        for left in folder.glob(f"{SCRATCH}*"):
            if not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
        yield file


def existing_logs(folder: Path, specs: Iterable[RunSpec]) -> dict[str, RunLog]:
    """Logs of these runs that the folder already holds, by run id.

    Args:
        folder: The output folder.
        specs: The runs.
    """
    found = {}
    for spec in specs:
        path = folder / f"{spec.run_id}.jsonl"
        if os.path.lexists(path):
            found[spec.run_id] = own_log(path, spec)
    return found


def own_log(path: Path, spec: RunSpec | None = None) -> RunLog:
    """A log, refused where its header is of another run than its name says.

    Args:
        path: The file.
        spec: The run that is wanted; None: any of that name.
    """
    log = RunLog.read(path, follow=False)
    if log.spec.run_id != path.stem or (spec is not None and not same_run(log.spec, spec)):
        said = f"{visible(path.name, keep='')[:90]} holds another run than its name says; restore it, or use another "
        raise BadFile(said, argument("out"))
    return log


def same_run(one: RunSpec, other: RunSpec) -> bool:
    """Whether two specs are of one run, whatever training has filled in since."""
    return one.seed == other.seed and one.cell_key == other.cell_key


def missing_spec(folder: Path, run_id: str) -> RunSpec:
    """The spec of a run that shares a fleet with one that is resumed, though it was not asked for now.

    Args:
        folder: The output folder.
        run_id: As a log names it, which may be anything.
    """
    path = folder / f"{run_id}.jsonl"
    if path.parent != folder or not os.path.isfile(path):
        name = visible(run_id, keep="")[:80]
        said = f"{name}.jsonl is missing, and a resume needs the whole fleet; restore it, or use another "
        raise BadFile(said, argument("out"))
    return own_log(path).spec


def begun_header(folder: Path, specs: Sequence[RunSpec]) -> HeaderRow | None:
    """The header of a fleet that was begun before: a bitwise resume needs its path.

    Args:
        folder: The output folder.
        specs: The runs of the fleet.
    """
    for spec in specs:
        path = folder / f"{spec.run_id}.jsonl"
        if os.path.lexists(path):
            return own_log(path, spec).header
    return None
