"""Parquet: ``out/parquet/RUN.parquet``, the table of the CSV sink, typed; the folder reads as one data set."""

from pathlib import Path
from typing import final

from creditscope.integrations.sink import missing
from creditscope.integrations.table import EpochTable, TableSink

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise missing("parquet", error) from None

_WHO = {"run": "string", "method": "string", "seed": "int64", "epoch": "int64", "status": "string"}


@final
class ParquetSink(TableSink):
    """Who and when as text and whole numbers, the rest as float64; what was not measured is null."""

    kind = "parquet"

    def write(self, path: Path, table: EpochTable) -> None:
        """Write a table to a new file."""
        types = _WHO | dict.fromkeys(table.names, "float64")
        schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in types.items()])
        parquet.write_table(pyarrow.Table.from_pylist(table.lines(), schema), path)

    def read(self, path: Path) -> dict[int, dict[str, float]]:
        """The numbers by epoch of a file that ``write`` wrote."""
        return {
            line["epoch"]: {name: cell for name, cell in line.items() if name not in _WHO and cell is not None}
            for line in parquet.read_table(path).to_pylist()
        }
