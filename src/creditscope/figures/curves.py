"""Trajectories over epochs: seeds aligned on the epochs they share, early ends marked, gaps said."""

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.figures.means import FLOOR, Mean, Value, common_epochs, mean_over
from creditscope.figures.table import STOPPED, Point
from creditscope.protocol.cells import Cell
from creditscope.records import RunLog


@dataclass(frozen=True)
class Curves:
    """Points of one panel and what must be said about them.

    Args:
        points: For the table.
        notes: Lines under the figure.
        early: Runs that ended early.
    """

    points: tuple[Point, ...]
    notes: tuple[str, ...]
    early: tuple[str, ...]


def floor_line(panel: str) -> Point:
    """The floor of the reference check, as a line.

    Args:
        panel: Key of the panel.
    """
    return Point(panel, "floor", "‖g_L‖", None, FLOOR, kind="line", note="default threshold of the reference check")


def common_end(cells: Sequence[Cell]) -> tuple[int | None, str]:
    """The last epoch that all cells reached (without runs that ended early), and a line that says what was left out.

    Args:
        cells: The cells that are compared.
    """
    ends = {
        cell.label: shared[-1]
        for cell in cells
        if not (averaged := cell.split()[0]).ended_early and (shared := common_epochs(averaged.runs))
    }
    if len(set(ends.values())) < 2:
        return None, ""
    until = min(ends.values())
    longer = ", ".join(f"{label} ({end})" for label, end in ends.items() if end > until)
    return until, f"Drawn over the common epochs, up to {until}; logged for longer: {longer}."


def trajectory(panel: str, quantity: str, cell: Cell, value: Value, until: int | None = None) -> Curves:
    """One cell over its epochs: the mean of its finished runs, and each run that ended early on its own.

    Args:
        panel: Key of the panel.
        quantity: What the value is.
        cell: The runs.
        value: What to take from a row.
        until: Last epoch to draw; None for all.
    """
    averaged, early = cell.split()
    points = _line(panel, quantity, cell.label, "", averaged.runs, value, until)
    for log in early:
        points += _line(panel, quantity, cell.label, f"seed {log.spec.seed}", (log,), value, until)
    halves = [point for point in points if point.low is not None and point.low <= 0]
    notes = [alignment(averaged), _half_bands(cell.label) if halves else ""]
    ends = tuple(early_end(cell.label, log) for log in cell.runs if not log.finished)
    return Curves(tuple(points), tuple(note for note in notes if note), ends)


def early_ends(curves: Sequence[Curves]) -> str:
    """Says which runs ended early; empty when none did.

    Args:
        curves: All trajectories of a figure.
    """
    ends = dict.fromkeys(end for item in curves for end in item.early)
    return f"Ended early, drawn as far as they got and marked ×: {'; '.join(ends)}." if ends else ""


def _half_bands(label: str) -> str:
    return f"{label}: where the s.d. exceeds the mean, only the upper half of the band can be shown."


def _line(
    panel: str, quantity: str, label: str, branch: str, logs: Sequence[RunLog], value: Value, until: int | None
) -> list[Point]:
    by_epoch = [(log, {row.epoch: row for row in log.epochs}) for log in logs]
    means: list[tuple[int, Mean]] = [
        (epoch, mean_over((log.name, value(log, rows[epoch])) for log, rows in by_epoch))
        for epoch in common_epochs(logs)
        if until is None or epoch <= until
    ]
    known = [epoch for epoch, mean in means if mean.y is not None]
    stop = known[-1] if known and not all(log.finished for log in logs) else None
    return [
        mean.point(panel, label, quantity, float(epoch), branch=branch, note=STOPPED if epoch == stop else "")
        for epoch, mean in means
        if known
    ]


def alignment(cell: Cell) -> str:
    """Says that seeds of different length were truncated to the epochs they share; empty when they agree.

    Args:
        cell: The runs that are averaged.
    """
    logged = {tuple(row.epoch for row in log.epochs) for log in cell.runs}
    if len(logged) < 2:
        return ""
    shared = common_epochs(cell.runs)
    ends = ", ".join(str(log.epochs[-1].epoch) for log in cell.runs)
    if not shared:
        return f"{cell.label}: the seeds share no epoch and are not drawn."
    return f"{cell.label}: seeds end at epochs {ends}; aligned on the {len(shared)} common epochs, up to {shared[-1]}."


def early_end(label: str, log: RunLog) -> str:
    """Which run ended early, when and how.

    Args:
        label: Its series.
        log: The run.
    """
    how = log.end.status if log.end is not None else "no end row"
    planned = f" of {log.spec.epochs}" if log.spec.epochs is not None else ""
    return f"{label} seed {log.spec.seed} (epoch {log.epochs[-1].epoch}{planned}, {how})"


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
    groups = "; ".join(f"{n} for {', '.join(s for s in counts if counts[s] == n)}" for n in reversed(sizes))
    return f"{shape}: ± s.d. over n seeds; n = {groups}{' (none drawn)' if sizes[0] == 1 else ''}."
