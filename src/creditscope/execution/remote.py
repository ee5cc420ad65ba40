"""One fleet trained on any machine: in a scratch folder, then handed back or uploaded whole."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from creditscope.data.dataset import Dataset
from creditscope.errors import BadFile, BadInput, CannotWrite, argument
from creditscope.execution.context import Quiet, TrainContext, checked, load_named, pick_device
from creditscope.execution.folder import hold
from creditscope.execution.in_process import InProcess
from creditscope.execution.job import FleetJob, Outcome, outcome_of
from creditscope.execution.store import upload
from creditscope.records import RunSpec

_ALONE = "creditscope-fleet-"
# Between making its folder and holding it a worker needs a moment.
_YOUNG = 10.0


@dataclass(frozen=True)
class RemoteContext:
    """Where and with what fleets are trained on other machines: all of it can be sent there.

    Args:
        data: By the name in a spec, what to load: a name, an ``.npz`` or a ``.txt`` file.
        data_dir: Folder of data that is not bundled, on the machine that does the work.
        device: ``auto``, ``cpu`` or ``cuda``.
        store: Where finished files are uploaded to, as fsspec names it; None: they are handed back.
        scratch: A folder that every machine sees, where a fleet whose worker was lost goes on; None: it begins again.
        rules: Rules from outside, as ``package.module:Name``.
    """

    data: Mapping[str, str]
    data_dir: Path | None = None
    device: str = "auto"
    store: str | None = None
    scratch: Path | None = None
    rules: tuple[object, ...] = ()

    def load(self, spec: RunSpec) -> Dataset:
        """The data set of a run."""
        name = spec.data.name if spec.data is not None else ""
        if name not in self.data:
            raise BadInput(f"a run on data {name!r} is not of this sweep; name its data there")
        return checked(spec, load_named(self.data[name], self.data_dir))


def train_away(job: FleetJob, remote: RemoteContext) -> Outcome:
    """Train a fleet in a scratch folder, then hand its files back or upload them: nothing half-done leaves.

    Args:
        job: The fleet.
        remote: Where and with what.
    """
    try:
        with _workplace(job, remote) as folder:
            outcome = _train(job, remote, folder)
            if outcome.error is None:
                _clear(folder)  # half a fleet that did not fit is another fleet
            return outcome
    except BaseException as error:  # without memory, saving what there is can fail in any way, a panic included
        return outcome_of(error)


def _train(job: FleetJob, remote: RemoteContext, folder: Path) -> Outcome:
    context = TrainContext(
        folder=folder,
        load=remote.load,
        device=pick_device(remote.device),
        progress=Quiet(),
        resume=True,
        rules=remote.rules,
    )
    with InProcess(context) as executor:
        executor.submit(job)
        outcome = executor.next_end().outcome
    if outcome.error is not None or outcome.out_of_memory:
        return outcome
    checkpoints = [folder / f"{stem}.safetensors" for stem in job.run_ids]
    logs = [folder / f"{stem}.jsonl" for stem in job.run_ids]
    if remote.store is not None:
        # Checkpoints first: a log with its end row says that the run is complete.
        upload(remote.store, checkpoints)
        upload(remote.store, logs)
    return Outcome({path.name: path.read_bytes() for path in (logs if remote.store else [*checkpoints, *logs])})


@contextmanager
def _workplace(job: FleetJob, remote: RemoteContext) -> Iterator[Path]:
    """Where a fleet is trained: its own folder of the shared scratch, or one that vanishes with the worker.

    A machine that was cut off may still be training there, and two must not: then this one begins anew, apart.
    """
    with ExitStack() as stack:
        folder = None
        if remote.scratch is not None:
            name = hashlib.sha256("\n".join(job.run_ids).encode()).hexdigest()[:16]
            folder = remote.scratch / f"fleet-{name}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                said = f": cannot be written by a worker ({error.strerror}); choose a folder that every machine sees"
                raise CannotWrite(argument("scratch", remote.scratch.name), said) from None
            try:
                stack.enter_context(hold(folder))
            except CannotWrite:
                folder = None
        if folder is None:
            _clear_dead()
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_ALONE, ignore_cleanup_errors=True)))
            stack.enter_context(hold(folder))
        yield folder


def _clear_dead() -> None:
    """Remove what workers of this user left on this machine that were ended: folders that nobody holds any more."""
    for left in Path(tempfile.gettempdir()).glob(f"{_ALONE}*"):
        if left.is_symlink() or left.stat().st_uid != os.getuid() or time.time() - left.stat().st_mtime < _YOUNG:
            continue
        with suppress(CannotWrite, BadFile), hold(left):
            _clear(left)


def _clear(folder: Path) -> None:
    """Leave nothing of a fleet that is over; the lock goes with its folder."""
    shutil.rmtree(folder, ignore_errors=True)
