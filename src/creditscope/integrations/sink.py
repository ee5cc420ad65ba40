"""Sinks: whatever takes the rows of runs as they are written. The log stays the record; a sink is a view of it."""

import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from creditscope.errors import BadInput, did_you_mean
from creditscope.integrations.scalars import Row
from creditscope.records import HeaderRow

logger = logging.getLogger("creditscope")

# One small file each, named like the extra that it needs.
SINKS = {
    "csv": "CsvSink",
    "mlflow": "MlflowSink",
    "parquet": "ParquetSink",
    "tensorboard": "TensorBoardSink",
    "wandb": "WandbSink",
}


class Sink(Protocol):
    """Takes rows of any number of runs, interleaved; made with the folder that it may write to."""

    def on_row(self, header: HeaderRow, row: Row) -> None:
        """One row of one run, just written to its log."""

    def close(self) -> None:
        """No more rows: runs without an end row stay unfinished."""


def sink_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """The names of sinks, each once; an unknown one is refused.

    Args:
        names: A list, or separated by commas.
    """
    given = names.split(",") if isinstance(names, str) else names
    asked = tuple(dict.fromkeys(name.strip() for name in given))
    for name in asked:
        if name not in SINKS:
            raise BadInput(f"wanted a sink to log to, got {name!r}; {did_you_mean(name, SINKS)}")
    return asked


def build_sink(name: str, out: str | Path) -> Sink:
    """The sink of a name.

    Args:
        name: One of ``SINKS``.
        out: Folder that it may write to, usually that of the logs.
    """
    (name,) = sink_names([name])
    made: Sink = getattr(import_module(f"creditscope.integrations.{name}"), SINKS[name])(Path(out))
    return made


def log_to(names: str | Sequence[str], out: str | Path, say: Callable[[str], None] | None = None) -> "Sinks":
    """Sinks for ``watch(..., on_row=...)`` or ``train(..., on_row=...)``, to be used in a ``with`` statement.

    Args:
        names: ``tensorboard``, ``wandb``, ``mlflow``, ``csv``, ``parquet``; several as a list or separated by commas.
        out: Folder that they may write to, usually that of the logs.
        say: Hears, in one line, when a sink fails; None logs a warning.
    """
    return Sinks({name: build_sink(name, out) for name in sink_names(names)}, say or logger.warning)


def missing(extra: str, error: ImportError) -> BadInput:
    """What to say when an optional package cannot be imported.

    Args:
        extra: The extra that brings it.
        error: What the import said.
    """
    return BadInput(f"{extra}: {str(error).splitlines()[0]}; pip install 'creditscope[{extra}]'")


class Sinks:
    """Passes each row to every sink. A sink that fails gets no more rows, one line says so, and the run goes on.

    Args:
        sinks: By name.
        say: Hears of a failure.
    """

    def __init__(self, sinks: dict[str, Sink], say: Callable[[str], None]) -> None:
        self._sinks, self._say = dict(sinks), say

    def __call__(self, header: HeaderRow, row: Row) -> None:
        """Take one row.

        Args:
            header: The run's header.
            row: A row just written to its log.
        """
        for name, sink in list(self._sinks.items()):
            try:
                sink.on_row(header, row)
            except Exception as error:  # a view of the run must never end it
                self._drop(name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                sink.close()
            except Exception as broken:
                self._drop(name, broken)

    def _drop(self, name: str, error: BaseException) -> None:
        del self._sinks[name]  # not closed: closing what is broken may wait for ever
        while error.__cause__ is not None:
            error = error.__cause__
        cause = (str(error).strip().splitlines() or ["no message"])[0]
        self._say(f"sink {name}: {type(error).__name__}: {cause}; it gets no more rows, the run and its log go on")
