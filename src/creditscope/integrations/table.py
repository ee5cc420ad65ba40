"""A table of epochs for each run, written whole after every row: a reader never sees a part of it."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from creditscope.integrations.scalars import OURS, Row, scalars
from creditscope.records import EndRow, EpochRow, HeaderRow, RunSpec
from creditscope.records.units import Units

UNFINISHED = "unfinished"


@dataclass
class EpochTable:
    """One line an epoch, with the expensive probes of that epoch.

    Args:
        spec: The run.
        epochs: The numbers by epoch.
        status: How it ended.
    """

    spec: RunSpec
    epochs: dict[int, dict[str, float]] = field(default_factory=dict)
    status: str = UNFINISHED

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of numbers, in the order in which they first came."""
        return tuple(dict.fromkeys(name for numbers in self.epochs.values() for name in numbers))

    def lines(self) -> list[dict[str, str | int | float | None]]:
        """The content of the file: who, when, and the numbers."""
        who = {"run": self.spec.run_id, "method": self.spec.method, "seed": self.spec.seed}
        return [
            {**who, "epoch": epoch, "status": self.status, **numbers} for epoch, numbers in sorted(self.epochs.items())
        ]

    def take(self, row: Row, units: Units = OURS) -> None:
        """Add a row's numbers to its epoch.

        Args:
            row: The row.
            units: Units of the run's log.
        """
        self.epochs.setdefault(row.epoch, {}).update(scalars(row, units))
        if isinstance(row, EndRow):
            self.status = row.status

    def truncate(self, row: Row) -> None:
        """Drop what a resumed run measures again.

        Args:
            row: The first row after the resume.
        """
        kept = row.epoch - 1 if isinstance(row, EpochRow) else row.epoch
        self.epochs = {epoch: numbers for epoch, numbers in self.epochs.items() if epoch <= kept}


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
        """Write the run's table again, with this row."""
        run = header.spec.run_id
        path = self._folder / f"{run}.{self.kind}"
        if run not in self._tables:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tables[run] = EpochTable(header.spec, self.read(path) if row.epoch and path.exists() else {})
            self._tables[run].truncate(row)
        table = self._tables[run]
        table.take(row, header.units)
        part = path.with_name(f".{path.name}")
        self.write(part, table)
        os.replace(part, path)
        if isinstance(row, EndRow):
            del self._tables[run]

    def close(self) -> None:
        """Every row is in its file already."""
        self._tables.clear()

    @abstractmethod
    def write(self, path: Path, table: EpochTable) -> None:
        """Write a table to a new file."""

    @abstractmethod
    def read(self, path: Path) -> dict[int, dict[str, float]]:
        """The numbers by epoch of a file that ``write`` wrote."""
