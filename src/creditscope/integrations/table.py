"""A table of epochs for each run, complete after every row: a reader never sees a part of a line."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from creditscope.integrations.scalars import OURS, Row, scalars
from creditscope.records import EndRow, EpochRow, HeaderRow, RunSpec
from creditscope.records.units import Units

UNFINISHED = "unfinished"
Line = dict[str, str | int | float | None]


@dataclass
class EpochTable:
    """One line an epoch, with the expensive probes of that epoch.

    Args:
        spec: The run.
        epochs: The numbers by epoch.
        status: How it ended.
        names: The columns of numbers, in the order in which they first came.
    """

    spec: RunSpec
    epochs: dict[int, dict[str, float]] = field(default_factory=dict)
    status: str = UNFINISHED
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(dict.fromkeys(name for numbers in self.epochs.values() for name in numbers))

    def lines(self) -> list[Line]:
        """The content of the file: who, when, and the numbers."""
        return [self.line(epoch) for epoch in sorted(self.epochs)]

    def line(self, epoch: int) -> Line:
        """One epoch of it.

        Args:
            epoch: Which.
        """
        who = {"run": self.spec.run_id, "method": self.spec.method, "seed": self.spec.seed}
        return {**who, "epoch": epoch, "status": self.status, **self.epochs[epoch]}

    def take(self, row: Row, units: Units = OURS) -> None:
        """Add a row's numbers to its epoch.

        Args:
            row: The row.
            units: Units of the run's log.
        """
        numbers = scalars(row, units)
        self.epochs.setdefault(row.epoch, {}).update(numbers)
        self.names += tuple(name for name in numbers if name not in self.names)
        if isinstance(row, EndRow):
            self.status = row.status

    def truncate(self, row: Row) -> None:
        """Drop what a resumed run measures again.

        Args:
            row: The first row after the resume.
        """
        kept = row.epoch - 1 if isinstance(row, EpochRow) else row.epoch
        self.epochs = {epoch: numbers for epoch, numbers in self.epochs.items() if epoch <= kept}
        self.__post_init__()


class TableSink(ABC):
    """Keeps one file a run, ``out/KIND/RUN.KIND``; a run that begins at epoch 0 begins its file again.

    Args:
        out: Folder of the runs.
    """

    kind: ClassVar[str]

    def __init__(self, out: Path) -> None:
        self._folder = out / self.kind
        self._tables: dict[str, EpochTable] = {}

    def on_row(self, header: HeaderRow, row: Row) -> None:
        """Bring the run's file up to date: where it can grow by a line it does, else it is written anew."""
        run = header.spec.run_id
        path = self._folder / f"{run}.{self.kind}"
        begins = run not in self._tables  # a file of an earlier call may hold lines and columns that are dropped now
        if begins:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tables[run] = EpochTable(header.spec, self.read(path) if row.epoch and path.exists() else {})
            self._tables[run].truncate(row)
        table = self._tables[run]
        before = table.names
        table.take(row, header.units)
        grows = isinstance(row, EpochRow) and table.names == before and not begins
        if not (grows and self.append(path, table, row.epoch)):
            part = path.with_name(f".{path.name}")
            self.write(part, table)
            os.replace(part, path)
        if isinstance(row, EndRow):
            del self._tables[run]

    def close(self) -> None:
        """Every row is in its file already."""
        self._tables.clear()

    def append(self, path: Path, table: EpochTable, epoch: int) -> bool:
        """Add one epoch's line to a file that ``write`` wrote; False where this kind of file cannot grow.

        Args:
            path: The file.
            table: The table, this epoch included.
            epoch: Which.
        """
        return False

    @abstractmethod
    def write(self, path: Path, table: EpochTable) -> None:
        """Write a table to a new file."""

    @abstractmethod
    def read(self, path: Path) -> dict[int, dict[str, float]]:
        """The numbers by epoch of a file that ``write`` wrote."""
