"""One training process: trains fleets that its parent hands it, and tells the parent what happens.

Started as ``python -m creditscope.execution.worker FD``, so that a user's own script is never imported a second time.
"""

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from creditscope.data.dataset import Dataset, Splits, make_dataset
from creditscope.engine.loop import LoggedRow
from creditscope.engine.start import default_model
from creditscope.execution.turns import TrainContext
from creditscope.records import HeaderRow, RunSpec

SPLITS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class WorkerJob:
    """What a training process is asked to do.

    Args:
        members: The runs of one fleet.
        folder: Where logs and checkpoints lie.
        data: File with the arrays of their data set.
        name: The data set's name.
        classes: Its number of classes.
        resume: Whether the fleet may have begun before.
    """

    members: tuple[RunSpec, ...]
    folder: Path
    data: Path
    name: str
    classes: int
    resume: bool


@dataclass(frozen=True)
class ParentLink:
    """Hands on to the parent what a fleet's loop says."""

    parent: Connection

    def stage(self, members: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """A fleet begins something."""
        self.parent.send(("stage", epoch, doing))

    def step(self, members: Sequence[RunSpec]) -> None:
        """One optimiser step is done."""
        self.parent.send(("step",))

    def note(self, line: str) -> None:
        """A line for the user."""
        self.parent.send(("note", line))

    def on_row(self, header: HeaderRow, row: LoggedRow) -> str | None:
        """A row was written; the parent says whether the run shall stop."""
        self.parent.send(("row", header, row))
        answer: str | None = self.parent.recv()
        return answer


def save_data(data: Dataset, path: Path) -> None:
    """Put a data set where a training process can read it.

    Args:
        data: The data set.
        path: The file.
    """
    np.savez(path, **{name: getattr(data, name).numpy() for name in SPLITS})


def load_saved(path: Path, name: str, classes: int) -> Dataset:
    """The data set that ``save_data`` put away.

    Args:
        path: The file.
        name: Its name.
        classes: Its number of classes.
    """
    with np.load(path, allow_pickle=False) as arrays:
        return make_dataset(name, Splits(*(arrays[name] for name in SPLITS)), classes)


def _train(order: WorkerJob, tell: ParentLink) -> None:
    data = load_saved(order.data, order.name, order.classes)
    TrainContext(
        folder=order.folder,
        load=lambda spec: data,
        factory=default_model,
        device=torch.device("cpu"),
        on_row=tell.on_row,
        progress=tell,
        note=tell.note,
        resume=order.resume,
    ).train([order.members])


def main() -> None:
    """Train what comes through the pipe until it closes."""
    parent = Connection(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent was started with
    tell = ParentLink(parent)
    try:
        while True:
            order: WorkerJob = parent.recv()
            try:
                _train(order, tell)
            except Exception as error:  # the parent decides what an error means
                parent.send(("failed", error))
            else:
                parent.send(("done",))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
