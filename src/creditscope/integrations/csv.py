"""CSV: ``out/csv/RUN.csv``, one line an epoch; what was not measured is an empty cell."""

import csv
from pathlib import Path
from typing import final

from creditscope.integrations.table import EpochTable, TableSink

_WHO = ("run", "method", "seed", "epoch", "status")


@final
class CsvSink(TableSink):
    """Needs no extra. Numbers are written so that they read back exactly."""

    kind = "csv"

    def write(self, path: Path, table: EpochTable) -> None:
        """Write a table to a new file."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*_WHO, *table.names), restval="")
            writer.writeheader()
            writer.writerows(table.lines())

    def read(self, path: Path) -> dict[int, dict[str, float]]:
        """The numbers by epoch of a file that ``write`` wrote."""
        with path.open(newline="", encoding="utf-8") as file:
            return {
                int(line["epoch"]): {name: float(cell) for name, cell in line.items() if name not in _WHO and cell}
                for line in csv.DictReader(file)
            }
