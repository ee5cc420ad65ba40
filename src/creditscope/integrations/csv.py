"""CSV: ``out/csv/RUN.csv``, one line an epoch; what was not measured is an empty cell."""

import csv
import io
import os
from pathlib import Path
from typing import final

from creditscope.integrations.table import EpochTable, Line, TableSink
from creditscope.records.table import csv_cell

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
            writer.writerows(map(_quoted, table.lines()))

    def append(self, path: Path, table: EpochTable, epoch: int) -> bool:
        """Add one line: probes and the end, which change lines that stand, are rare."""
        if epoch != max(table.epochs) or not path.is_file() or path.is_symlink():
            return False
        text = io.StringIO(newline="")
        csv.DictWriter(text, (*_WHO, *table.names), restval="").writerow(_quoted(table.line(epoch)))
        with path.open("r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                rest = memoryview(text.getvalue().encode())
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(size)
                raise
        return True

    def read(self, path: Path) -> dict[int, dict[str, float]]:
        """The numbers by epoch of a file that ``write`` wrote."""
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        with io.StringIO("".join(line for line in lines if line.endswith("\n")), newline="") as file:
            return {
                int(line["epoch"]): {name: float(cell) for name, cell in line.items() if name not in _WHO and cell}
                for line in csv.DictReader(file)
            }


def _quoted(line: Line) -> Line:
    return {key: csv_cell(value) if isinstance(value, str) else value for key, value in line.items()}
