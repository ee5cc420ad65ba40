"""Train a list of specs on this machine: load the data, pack fleets, loop, leave logs."""

import fcntl
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

import torch

from creditscope.data import DATASETS, load_data
from creditscope.data.dataset import Dataset
from creditscope.engine.loop import OnRow, Progress
from creditscope.engine.start import Factory, default_model
from creditscope.errors import BadInput, CannotWrite
from creditscope.execution.gpu import train_on_gpu
from creditscope.execution.pack import plan_fleets
from creditscope.execution.processes import process_count, train_in_processes
from creditscope.execution.turns import TrainContext
from creditscope.models import MODELS
from creditscope.records import RunLog, RunSpec

logger = logging.getLogger("creditscope")
Load = Callable[[str], Dataset]


class Quiet:
    """A progress display that shows nothing; what a user must know is logged as a warning."""

    def plan(self, fleets: Sequence[Sequence[RunSpec]], total_runs: int) -> None:
        """The fleets about to be trained."""

    def note(self, line: str) -> None:
        """Something that a user should read."""
        logger.warning(line)

    def stage(self, members: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """A fleet begins something."""

    def step(self, members: Sequence[RunSpec]) -> None:
        """One step is done."""


class PlanProgress(Progress, Protocol):
    """A progress display that also hears the plan."""

    def plan(self, fleets: Sequence[Sequence[RunSpec]], total_runs: int) -> None:
        """The fleets about to be trained, and how many runs were asked for."""

    def note(self, line: str) -> None:
        """Something that a user should read, such as a damaged file that was set aside."""


def train(
    specs: Iterable[RunSpec],
    out: Path | str,
    *,
    data: Dataset | None = None,
    model: Factory | None = None,
    device: str = "auto",
    resume: bool = False,
    on_row: OnRow | None = None,
    progress: PlanProgress | None = None,
) -> list[RunLog]:
    """Train runs and return their logs.

    Args:
        specs: The runs; those of equal shapes are stacked.
        out: Folder for logs and checkpoints; made if need be.
        data: The data set of every run; None: each spec's, by name (``CREDITSCOPE_DATA`` names the folder).
        model: Builds a run's model from (spec, data set); None: the spec's own model.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Go on with runs that the folder already holds.
        on_row: Hears every row; a text it returns stops that run.
        progress: Hears what is going on.
    """
    folder = open_folder(Path(out))
    where = pick_device(device)
    progress = progress or Quiet()
    loaded: dict[str, Dataset] = {}

    def load(name: str) -> Dataset:
        if data is not None:
            return data
        if name not in loaded:
            if name not in DATASETS:
                raise BadInput(f"data {name!r} is not known by its name alone; pass the data set as data=")
            loaded[name] = load_data(name)
        return loaded[name]

    runs = list(dict.fromkeys(_with_data(spec, load) for spec in specs))
    if not runs:
        raise BadInput("no run to train: wanted at least one method and one seed")
    if model is not None and runs[0].model in MODELS:
        raise BadInput(
            f"a model of your own needs a name of its own, the spec says {runs[0].model!r}: its log would claim to be "
            f"ours; pass changes={{'model': 'my-net'}} to specs()"
        )
    with hold(folder) as lock:
        context = TrainContext(
            folder=folder,
            load=lambda spec: load(_data_name(spec)),
            factory=model or default_model,
            device=where,
            on_row=on_row or (lambda header, row: None),
            progress=progress,
            note=progress.note,
            resume=resume,
        )
        fleets: list[Sequence[RunSpec]] = [*plan_fleets(folder, runs, resume)]
        count = process_count(context, fleets) if model is None and where.type == "cpu" else 1
        if count > 1:
            fleets = [part for fleet in fleets for part in context.deal(fleet, count)]
        progress.plan(fleets, len(runs))
        if where.type == "cuda":
            train_on_gpu(fleets, context)
        elif count > 1:
            train_in_processes(fleets, count, context, keeps=(lock.fileno(),))
        else:
            context.train(fleets)
    return [RunLog.read(folder / f"{spec.run_id}.jsonl") for spec in runs]


def pick_device(name: str) -> torch.device:
    """The device to train on.

    Args:
        name: ``auto``: CUDA where there is one, else the CPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f"--device {name}: wanted auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: this torch sees no CUDA device; use --device cpu or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _with_data(spec: RunSpec, load: Load) -> RunSpec:
    """The spec with the data set's hashes filled in, refused when it names other content."""
    data = load(_data_name(spec))
    named = spec.data
    if named is not None and (
        named.hash_train not in (None, data.spec.hash_train) or named.hash_test not in (None, data.spec.hash_test)
    ):
        raise BadInput(f"data {named.name!r} is not the data this run was specified on (its content hash differs)")
    return spec.model_copy(update={"data": data.spec, "classes": data.classes})


def _data_name(spec: RunSpec) -> str:
    if spec.data is None:
        raise BadInput("a run without data cannot be trained; name a data set in its spec")
    return spec.data.name


def open_folder(folder: Path) -> Path:
    """The output folder, made if need be.

    Args:
        folder: Where it is wanted.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"--out {folder.name}: cannot be made ({error.strerror}); choose a folder you can write"
        ) from None
    return folder


@contextmanager
def hold(folder: Path, name: str = ".lock") -> Iterator[IO[str]]:
    """Hold a folder while writing: two writers would tear each other's logs.

    Args:
        folder: The folder.
        name: The file that is locked; it is left there, empty.
    """
    try:
        file: IO[str] = (folder / name).open("w")
    except OSError as error:
        raise CannotWrite(
            f"--out {folder.name}: cannot write there ({error.strerror}); choose another folder"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotWrite(
                f"--out {folder.name}: another creditscope is training there; wait or choose another"
            ) from None
        yield file
