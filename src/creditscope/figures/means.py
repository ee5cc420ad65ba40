"""Means over the seeds of a cell, at the epochs that they share."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from creditscope.figures.table import Kind, Point
from creditscope.protocol.cells import Cell, cells_of
from creditscope.protocol.checks.reference import REFERENCE_FLOOR
from creditscope.quantities.per_epoch import HIDDEN, REFERENCE
from creditscope.quantities.quantity import EpochQuantity
from creditscope.records import EpochRow, RunLog
from creditscope.records.units import PUBLISHED_PROBE_SIZE

FLOOR = REFERENCE_FLOOR

Value = Callable[[RunLog, EpochRow], float | None]


@dataclass(frozen=True)
class Mean:
    """A mean over runs.

    Args:
        y: The mean; None when no run holds the value.
        low: Mean minus one standard deviation; None below two runs.
        high: Mean plus one.
        n: Runs that hold the value.
        logs: Their names.
    """

    y: float | None
    low: float | None
    high: float | None
    n: int
    logs: tuple[str, ...]

    @property
    def spread(self) -> str:
        """What low and high are."""
        return f"± s.d. over {self.n} seeds" if self.low is not None else ""

    def point(
        self, panel: str, series: str, quantity: str, x: float | str | None, kind: Kind = "point", **more: Any
    ) -> Point:
        """The mean as a point, a bar or a reference line; a line has no error bar that could be explained.

        Args:
            panel: Key of the panel.
            series: Label of the series.
            quantity: What y is.
            x: Position, or the name under a bar; None for a reference line.
            kind: How it is drawn.
            more: Other fields of the point.
        """
        spread = "" if kind == "line" else self.spread
        fields = {"low": self.low, "high": self.high, "n": self.n, "logs": self.logs, "kind": kind, "spread": spread}
        return Point(panel, series, quantity, x, self.y, **(fields | more))


def mean_over(values: Iterable[tuple[str, float | None]]) -> Mean:
    """Mean ± sample standard deviation over the runs that hold a finite value.

    Args:
        values: Log name and value.
    """
    known = [(name, value) for name, value in values if value is not None and math.isfinite(value)]
    if not known:
        return Mean(None, None, None, 0, ())
    numbers = np.array([value for _, value in known], dtype=np.float64)
    y = float(numbers.mean())
    names = tuple(name for name, _ in known)
    if len(known) == 1:
        return Mean(y, None, None, 1, names)
    sd = float(numbers.std(ddof=1))
    return Mean(y, y - sd, y + sd, len(known), names)


def common_epochs(logs: Sequence[RunLog]) -> list[int]:
    """The epochs that every run has logged, in order.

    Args:
        logs: The runs.
    """
    shared = set.intersection(*({row.epoch for row in log.epochs} for log in logs)) if logs else set()
    return sorted(shared)


def at(log: RunLog, epoch: int) -> EpochRow:
    """The row of an epoch that the log is known to hold.

    Args:
        log: The run.
        epoch: The epoch.
    """
    return next(row for row in log.epochs if row.epoch == epoch)


def mean_at(logs: Sequence[RunLog], epoch: int, value: Value) -> Mean:
    """A mean over runs at one epoch.

    Args:
        logs: The runs.
        epoch: An epoch that all have logged.
        value: What to take from a row.
    """
    return mean_over((log.name, value(log, at(log, epoch))) for log in logs)


def value_of(quantity: EpochQuantity, place: int = -1) -> Value:
    """How to take one value of a quantity from a row.

    Args:
        quantity: What to take.
        place: Which state or block; the last one, or the only number, by default.
    """
    return lambda run, row: quantity.at(row, run.units, place)


def depth_of(log: RunLog) -> int | None:
    """Number of blocks L: from the spec, else from the longest per-state list of the log.

    Args:
        log: The run.
    """
    if log.spec.depth is not None:
        return log.spec.depth
    lists = [values for row in log.epochs[:1] for q in (HIDDEN, REFERENCE) if (values := q.read(row, log.units))]
    return max(map(len, lists)) - 1 if lists else None


def assumed_units(cells: Iterable[Cell]) -> str:
    """Says whose reference norms were read in the published units; empty when every log states its own.

    Args:
        cells: The cells of a figure.
    """
    names = [cell.label for cell in cells if not cell.runs[0].units.known]
    if not names:
        return ""
    return f"Units of the reference not logged, read as a mean over {PUBLISHED_PROBE_SIZE}: {', '.join(names)}."


def drawn_cells(logs: Sequence[RunLog]) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """The cells that a figure can draw: empty runs are left out, and of a run that was given twice the shorter log.

    Args:
        logs: Any number of runs.

    Returns:
        The cells in order of first appearance, and what was left out and why.
    """
    kept: dict[object, RunLog] = {}
    warnings: list[str] = []
    for log in logs:
        if not log.epochs:
            warnings.append(f"{log.name} holds no epoch and is left out")
            continue
        key = object() if log.spec.seed is None else (log.spec.cell_key, log.spec.seed)
        if key not in kept:
            kept[key] = log
            continue
        other = kept[key]
        short, kept[key] = (log, other) if len(log.epochs) < len(other.epochs) or log == other else (other, log)
        warnings.append(f"{short.name} repeats {kept[key].name} (same run, same seed) and is left out")
    return cells_of(kept.values()), tuple(warnings)
