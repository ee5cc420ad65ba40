"""One fleet as a unit of work for any process: trained in a folder, or in a scratch folder and handed back."""

import gc
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import torch

from creditscope.data import load_data
from creditscope.data.dataset import Dataset
from creditscope.engine.memory import fleet_bytes
from creditscope.errors import CannotWrite, CreditscopeError
from creditscope.execution.local import PlanProgress, hold, train
from creditscope.execution.store import upload
from creditscope.records import RunSpec

_LARGE = 64 * 2**20
_WORKER_LOCK = ".worker.lock"
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


@dataclass(frozen=True)
class FleetJob:
    """A fleet to be trained.

    Args:
        number: Its number in the sweep, from 1.
        specs: Its runs.
        data: Name of the data set, or its ``.npz`` file.
        data_dir: Folder of data that is not bundled, on the machine that does the work.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: Torch threads; None: as torch chooses.
        store: Where finished files are uploaded to, as fsspec names it; None: they are handed back.
        scratch: A folder that every machine sees, where a fleet whose worker was lost goes on; None: it begins again.
    """

    number: int
    specs: tuple[RunSpec, ...]
    data: str
    data_dir: Path | None = None
    device: str = "auto"
    threads: int | None = None
    store: str | None = None
    scratch: Path | None = None

    @property
    def run_ids(self) -> list[str]:
        """The file stems of its runs."""
        return [spec.run_id for spec in self.specs]

    def halves(self) -> tuple["FleetJob", "FleetJob"]:
        """Two jobs of half the runs each."""
        middle = len(self.specs) // 2
        return replace(self, specs=self.specs[:middle]), replace(self, specs=self.specs[middle:])


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        files: Name and content of what was made, where it did not stay on the machine that made it.
        out_of_memory: Whether the fleet did not fit, or is thought not to have.
        error: In one line, why it failed; None when it did not.
        notes: Lines that a user should read.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    out_of_memory: bool = False
    error: str | None = None
    notes: tuple[str, ...] = ()


def train_job(job: FleetJob, folder: Path, progress: PlanProgress | None = None) -> None:
    """Train a fleet in a folder, going on with what is there.

    Args:
        job: The fleet.
        folder: Where its logs and checkpoints go.
        progress: Hears what is going on.
    """
    if fleet_bytes(job.specs, "cpu") > _LARGE:
        gc.collect()  # the parts of an earlier fleet hold each other: without this they stay a while, on a GPU too
    before = torch.get_num_threads()
    torch.set_num_threads(job.threads or before)
    try:
        train(
            job.specs,
            folder,
            data=dataset(job.data, job.data_dir),
            device=job.device,
            resume=True,
            progress=progress,
        )
    finally:
        torch.set_num_threads(before)


def train_away(job: FleetJob) -> Outcome:
    """Train a fleet in a scratch folder, then hand its files back or upload them: nothing half-done leaves.

    Args:
        job: The fleet.
    """
    try:
        with _workplace(job) as folder:
            return _train_away(job, folder)
    except CreditscopeError as error:
        return Outcome(error=str(error))


def _train_away(job: FleetJob, folder: Path) -> Outcome:
    try:
        train_job(job, folder)
        if job.store is not None:
            # Checkpoints first: a log with its end row says that the run is complete.
            upload(job.store, [folder / f"{stem}.safetensors" for stem in job.run_ids])
            upload(job.store, [folder / f"{stem}.jsonl" for stem in job.run_ids])
    except BaseException as error:  # without memory, saving what there is can fail in any way, a panic included
        if not is_out_of_memory(error):
            raise
        _clear(folder)  # half a fleet is another fleet
        return Outcome(out_of_memory=True)
    kinds = (".jsonl",) if job.store is not None else (".safetensors", ".jsonl")
    files = {stem + kind: (folder / (stem + kind)).read_bytes() for kind in kinds for stem in job.run_ids}
    _clear(folder)
    return Outcome(files)


@contextmanager
def _workplace(job: FleetJob) -> Iterator[Path]:
    """Where a fleet is trained: its own folder of the shared scratch, or one that vanishes with the worker.

    A machine that was cut off may still be training there, and two must not: then this one begins anew, apart.
    """
    with ExitStack() as stack:
        folder = None
        if job.scratch is not None:
            name = hashlib.sha256("\n".join(job.run_ids).encode()).hexdigest()[:16]
            folder = job.scratch / f"fleet-{name}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CannotWrite(
                    f"--scratch {job.scratch.name}: cannot be written by a worker ({error.strerror}); choose a folder "
                    f"that every machine sees"
                ) from None
            try:
                stack.enter_context(hold(folder, _WORKER_LOCK))
            except CannotWrite:
                folder = None
        yield folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="creditscope-")))


def _clear(folder: Path) -> None:
    """Leave nothing of a fleet that is over; the lock goes with its folder."""
    shutil.rmtree(folder, ignore_errors=True)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the device or of the machine, ran out; or followed on one that does.

    Args:
        error: What was raised.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return False
    step: BaseException | None = error
    while step is not None:
        if isinstance(step, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(step, RuntimeError) and any(words in str(step) for words in _NO_MEMORY):
            return True
        step = step.__context__
    return False


@lru_cache(maxsize=2)
def dataset(name: str, data_dir: Path | None) -> Dataset:
    """A data set, read once a process for the fleets that follow each other there.

    Args:
        name: Its name, or an ``.npz`` file.
        data_dir: Folder of data that is not bundled.
    """
    return load_data(name, data_dir)
