"""One training process: trains fleets that its parent hands it, and tells the parent what happens.

Started as ``python -m creditscope.execution.worker FD``, so that a user's own script is never imported a second time.
"""

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from creditscope.data.dataset import Dataset, Splits, make_dataset
from creditscope.engine.loop import LoggedRow
from creditscope.execution.context import TrainContext
from creditscope.execution.in_process import InProcess
from creditscope.execution.job import FleetJob, Outcome
from creditscope.records import HeaderRow, RunSpec
from creditscope.records.files import cannot_write
from creditscope.signals import stop_once

SPLITS = ("x_train", "y_train", "x_test", "y_test")


class SavedData(NamedTuple):
    """A data set where any process of this machine can read it.

    Args:
        path: File with its arrays.
        name: Its name.
        classes: Its number of classes.
    """

    path: Path
    name: str
    classes: int


class WorkerJob(NamedTuple):
    """What a training process is asked to do.

    Args:
        job: The fleet.
        data: Its data set.
        folder: Where logs and checkpoints lie.
        resume: Whether the fleet may have begun before.
        rules: Rules from outside, by name.
    """

    job: FleetJob
    data: SavedData
    folder: Path
    resume: bool
    rules: tuple[object, ...]


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


def save_data(data: Dataset, path: Path) -> SavedData:
    """Put a data set where a training process can read it.

    Args:
        data: The data set.
        path: The file.
    """
    try:
        np.savez(path, **{name: getattr(data, name).numpy() for name in SPLITS})
    except OSError as error:
        raise cannot_write(path, error, resume=True) from None
    return SavedData(path, data.name, data.classes)


def load_saved(saved: SavedData) -> Dataset:
    """The data set that ``save_data`` put away.

    Args:
        saved: Where.
    """
    with np.load(saved.path, allow_pickle=False) as arrays:
        return make_dataset(saved.name, Splits(*(arrays[name] for name in SPLITS)), saved.classes)


def _train(asked: WorkerJob, link: ParentLink) -> Outcome:
    data = load_saved(asked.data)
    context = TrainContext(
        folder=asked.folder,
        load=lambda spec: data,
        device=torch.device("cpu"),
        progress=link,
        on_row=link.on_row,
        resume=asked.resume,
        rules=asked.rules,
    )
    with InProcess(context) as executor:
        executor.submit(asked.job)
        return executor.next_end().outcome


def main() -> None:
    """Train what comes through the pipe until it closes."""
    parent = Connection(int(sys.argv[1]))
    # From the parent, from a cluster that tells every process of a job, or from both.
    stop_once(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    link = ParentLink(parent)
    try:
        while True:
            asked: WorkerJob = parent.recv()
            try:
                outcome = _train(asked, link)
            except Exception as error:  # the parent raises it
                parent.send(("bug", error))
            else:
                parent.send(("ended", outcome))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
