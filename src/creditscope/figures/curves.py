"""Trajectories over epochs: seeds aligned on the epochs they share, early ends marked, gaps said."""

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.figures.cells import Cell, Mean, Value, common_epochs, ended_early, mean_over
from creditscope.figures.table import STOPPED, Point
from creditscope.records import RunLog


@dataclass(frozen=True)
class Curves:
    """Points of one panel and what must be said about them.

    Args:
        points: For the table.
        notes: Lines under the figure.
    """

    points: tuple[Point, ...]
    notes: tuple[str, ...]


def trajectory(panel: str, quantity: str, cell: Cell, value: Value) -> Curves:
    """One cell over its epochs: the mean of its finished runs, and each run that ended early beside it.

    Args:
        panel: Key of the panel.
        quantity: What the value is.
        cell: The runs.
        value: What to take from a row.
    """
    averaged, early = cell.split()
    points = _line(panel, quantity, cell.label, "", averaged.logs, value)
    notes = [alignment(averaged), *(early_end(cell.label, log) for log in cell.logs if ended_early(log))]
    for log in early:
        points += _line(panel, quantity, cell.label, f"seed {log.spec.seed}", (log,), value)
    return Curves(tuple(points), tuple(note for note in notes if note))


def _line(panel: str, quantity: str, label: str, branch: str, logs: Sequence[RunLog], value: Value) -> list[Point]:
    by_epoch = [(log, {row.epoch: row for row in log.epochs}) for log in logs]
    means: list[tuple[int, Mean]] = [
        (epoch, mean_over((log.name, value(log, rows[epoch])) for log, rows in by_epoch))
        for epoch in common_epochs(logs)
    ]
    known = [epoch for epoch, mean in means if mean.y is not None]
    stop = known[-1] if known and any(ended_early(log) for log in logs) else None
    return [
        Point(
            panel=panel,
            series=label,
            branch=branch,
            quantity=quantity,
            x=float(epoch),
            y=mean.y,
            low=mean.low,
            high=mean.high,
            n=mean.n,
            logs=mean.logs,
            spread=mean.spread,
            note=STOPPED if epoch == stop else "",
        )
        for epoch, mean in means
        if known
    ]


def alignment(cell: Cell) -> str:
    """Says that seeds of different length were cut to the epochs they share; empty when they agree.

    Args:
        cell: The runs that are averaged.
    """
    logged = {tuple(row.epoch for row in log.epochs) for log in cell.logs}
    if len(logged) < 2:
        return ""
    shared = common_epochs(cell.logs)
    ends = ", ".join(str(log.epochs[-1].epoch) for log in cell.logs)
    if not shared:
        return f"{cell.label}: the seeds share no epoch and are not drawn."
    return f"{cell.label}: seeds end at epochs {ends}; aligned on the {len(shared)} common epochs, up to {shared[-1]}."


def early_end(label: str, log: RunLog) -> str:
    """Says that a run ended early, and how.

    Args:
        label: Its series.
        log: The run.
    """
    how = log.end.status if log.end is not None else "no end row"
    planned = f" of {log.spec.epochs}" if log.spec.epochs is not None else ""
    reached = log.epochs[-1].epoch
    return (
        f"{label}, seed {log.spec.seed}: ended at epoch {reached}{planned} ({how}); drawn as far as it got, marked ×."
    )


def left_out(points: Sequence[Point], what: str) -> str:
    """Says which values a logarithmic axis cannot show; empty when it shows all.

    Args:
        points: Points of one logarithmic panel.
        what: The quantity, in words.
    """
    counts: dict[str, int] = {}
    for point in points:
        if point.kind == "point" and (point.y is None or point.y <= 0):
            counts[point.series] = counts.get(point.series, 0) + 1
    if not counts:
        return ""
    listed = ", ".join(f"{series} ({count})" for series, count in counts.items())
    return f"Left out of {what}, zero or not logged: {listed}."


def error_bars(points: Sequence[Point], shape: str) -> str:
    """Says what the error bars or bands are, and over how many seeds.

    Args:
        points: All points of a figure.
        shape: ``Error bars`` or ``Bands``.
    """
    counts: dict[str, int] = {}
    for point in points:
        if point.kind != "line" and not point.branch and point.y is not None and "redraws" not in point.spread:
            counts[point.series] = max(point.n, counts.get(point.series, 0))
    if not counts:
        return ""
    sizes = sorted(set(counts.values()))
    if sizes == [1]:
        return f"One seed each: no {shape.lower()}."
    if len(sizes) == 1:
        return f"{shape}: ± s.d. over {sizes[0]} seeds."
    listed = ", ".join(f"{series} {n}" for series, n in counts.items())
    tail = " (one seed: none)" if sizes[0] == 1 else ""
    return f"{shape}: ± s.d. over n seeds; n = {listed}{tail}."
