"""From logs to repeated runs: cells, their labels, their units, and means over seeds."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from creditscope.protocol.checks.reference import REFERENCE_FLOOR
from creditscope.protocol.facts import RunFacts
from creditscope.records import EpochRow, RunLog, RunSpec
from creditscope.records.labels import labels_of
from creditscope.records.layouts import PUBLISHED_PROBE_SIZE

FLOOR = REFERENCE_FLOOR

Value = Callable[[RunLog, EpochRow], float | None]


@dataclass(frozen=True)
class Cell:
    """Runs that differ only in their seed.

    Args:
        logs: By rising seed.
        label: The method, with what tells it from the other cells of the figure.
    """

    logs: tuple[RunLog, ...]
    label: str

    @property
    def spec(self) -> RunSpec:
        """The spec of the first run; only the seed differs in the others."""
        return self.logs[0].spec

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the logs."""
        return tuple(log.name for log in self.logs)

    @property
    def ended_early(self) -> bool:
        """Whether these runs stopped before their last planned epoch."""
        return any(ended_early(log) for log in self.logs)

    def split(self) -> "tuple[Cell, tuple[RunLog, ...]]":
        """The runs to average, and those that ended early and are kept out of the mean.

        When every run ended early they are averaged over the epochs they share.
        """
        done = tuple(log for log in self.logs if not ended_early(log))
        if not done:
            return self, ()
        return Cell(done, self.label), tuple(log for log in self.logs if ended_early(log))


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


def ended_early(log: RunLog) -> bool:
    """Whether a run stopped before its planned end; a log without an end row counts as stopped.

    Args:
        log: The run.
    """
    return not log.finished


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


def depth_of(log: RunLog) -> int | None:
    """Number of blocks L: from the spec, else from the longest per-state list of the log.

    Args:
        log: The run.
    """
    if log.spec.depth is not None:
        return log.spec.depth
    lists = [norms.median for row in log.epochs[:1] for norms in (row.hidden, row.reference) if norms is not None]
    return max(map(len, lists)) - 1 if lists else None


def assumed_units(cells: Iterable[Cell]) -> str:
    """Says whose reference norms were read in the published units; empty when every log states its own.

    Args:
        cells: The cells of a figure.
    """
    names = [cell.label for cell in cells if not RunFacts(cell.logs[0].header).units_known]
    if not names:
        return ""
    return f"Units of the reference not logged, read as a mean over {PUBLISHED_PROBE_SIZE}: {', '.join(names)}."


def _entry(numbers: list[float | None] | None, state: int) -> float | None:
    return numbers[state] if numbers is not None and -len(numbers) <= state < len(numbers) else None


def hidden(state: int | None) -> Value:
    """‖h_l‖, median over samples.

    Args:
        state: l; None for the last state L.
    """

    def value(log: RunLog, row: EpochRow) -> float | None:
        where = depth_of(log) if state is None else state
        return None if row.hidden is None or where is None else _entry(row.hidden.median, where)

    return value


def reference(state: int | None) -> Value:
    """‖g_l‖, median over samples, per sample.

    Args:
        state: l; None for the last state L.
    """

    def value(log: RunLog, row: EpochRow) -> float | None:
        where = depth_of(log) if state is None else state
        norm = None if row.reference is None or where is None else _entry(row.reference.median, where)
        return None if norm is None else norm * RunFacts(log.header).reference_factor

    return value


def accuracy(log: RunLog, row: EpochRow) -> float | None:
    """Test accuracy, a fraction.

    Args:
        log: The run.
        row: One of its rows.
    """
    return row.test_accuracy


def cells_of(logs: Sequence[RunLog]) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """Group runs that differ only in their seed, and label the groups.

    Args:
        logs: Any number of runs.

    Returns:
        The cells in order of first appearance, and what was left out and why.
    """
    groups: dict[str, list[RunLog]] = {}
    warnings: list[str] = []
    for log in logs:
        if not log.epochs:
            warnings.append(f"{log.name} holds no epoch and is left out")
            continue
        group = groups.setdefault(log.spec.cell_key, [])
        twin = next((other for other in group if other.spec.seed == log.spec.seed is not None), None)
        if twin is None:
            group.append(log)
            continue
        short, long = sorted((twin, log), key=lambda run: len(run.epochs)) if log != twin else (log, twin)
        group[group.index(twin)] = long
        warnings.append(f"{short.name} repeats {long.name} (same run, same seed) and is left out")
    members = [tuple(sorted(group, key=_by_seed)) for group in groups.values()]
    labels = labels_of([group[0].spec for group in members])
    return tuple(Cell(group, label) for group, label in zip(members, labels, strict=True)), tuple(warnings)


def _by_seed(log: RunLog) -> tuple[bool, int, str]:
    return log.spec.seed is None, log.spec.seed or 0, log.name
