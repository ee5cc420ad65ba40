"""Artefact ``survival``: what every claim gains over its strongest opponent, in tiers, one panel a task."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.figures.draw import handle
from creditscope.figures.page import LEAST_AXES, Page, Slot, add_legend, add_notes, add_row, closed, fixed_height
from creditscope.figures.style import GREY, INCHES, INK, NEUTRAL, PALE, SMALL, LineStyle, Width
from creditscope.figures.table import Panel, Point, Series, Table
from creditscope.protocol.audit import audit
from creditscope.protocol.checks.depth import Depth
from creditscope.protocol.survival import Contest, Survivor, survival
from creditscope.protocol.text import span
from creditscope.protocol.verdict import VerdictKind
from creditscope.records import RunLog

PP = 100.0
GAIN = "margin over the strongest opponent (pp)"
_STYLES = {
    str(VerdictKind.TRUSTWORTHY): LineStyle("#009E73", "o", ""),
    str(VerdictKind.INCOMPLETE): LineStyle("#E69F00", "s", ""),
    str(VerdictKind.WALKED_BACK): LineStyle("#8B1A1A", "X", ""),
}
# Inches: what a row takes, and what the names of methods take beside the axes, besides the room for a label.
_ROW, _NAMES = 0.15, 0.4
_LEAK = " †"


def survival_table(logs: Sequence[RunLog]) -> Table:
    """Everything the survival figure shows.

    Args:
        logs: Claims of any rules on any tasks, with their opponents and backprop as control.
    """
    contests = survival(audit(logs)) if any(not log.spec.is_baseline for log in logs) else ()
    panels = [_panel(key, contest) for key, contest in zip(_keys(len(contests)), contests, strict=True)]
    shown = [point for panel, contest in zip(panels, contests, strict=True) for point in _points(panel.key, contest)]
    leaks = sorted({row.cell.method for contest in contests for row in contest.survivors if row.leaks})
    notes = [
        "Right: the tier. One ends where the paired interval of the difference to its best method lies wholly above "
        "0, seeds and test samples joined; inside a tier nothing is told apart. Bars: 95 % intervals. Dashed: 0 and "
        "the margin of the depth check."
    ]
    if leaks:
        notes.append(f"†, a locality leak: blocks of {', '.join(leaks)} move when later weights do.")
    return Table(
        figure="survival",
        points=tuple(shown),
        series=tuple(Series(verdict, verdict) for verdict in _STYLES),
        panels=tuple(panels) or (Panel("a", "", GAIN, "", empty="no trained run is among these logs"),),
        notes=tuple(notes),
        warnings=tuple(
            f"survival: {row.cell.method} on {contest.name} has no opponent among these logs; not drawn"
            for contest in contests
            for row in contest.survivors
            if row.opponent is None
        ),
    )


def _keys(count: int) -> list[str]:
    return [chr(ord("a") + at) if at < 26 else f"a{at}" for at in range(count)]


def _panel(key: str, contest: Contest) -> Panel:
    compared = any(row.opponent is not None for row in contest.survivors)
    caption = ""
    if not contest.tells:
        found = contest.control
        gain = "no positive control (bp and bp@frozen) is among these logs"
        if found is not None:
            gain = f"backprop itself gains {PP * found.mean:+.2f} pp over its frozen twin"
            gain += "" if math.isinf(found.half()) else f", interval {span(PP * found.low(), PP * found.high(), '')}"
        caption = f"This task cannot tell: {gain}."
    return Panel(
        key, f"({key}) {contest.name}", GAIN, "", caption=caption, empty="" if compared else "nothing to compare with"
    )


def _points(panel: str, contest: Contest) -> list[Point]:
    found = []
    for row in contest.survivors:
        if row.opponent is None:
            continue
        margin, name = row.opponent.margin, row.cell.method + (_LEAK if row.leaks else "")
        known = {"series": row.verdict, "x": name, "n": len(row.cell.runs)}
        logs = tuple(run.name for run in row.cell.runs)
        ends = (None, None) if math.isinf(margin.half()) else (PP * margin.low(), PP * margin.high())
        against = f"over {row.opponent.method}"
        fired = f"; fires: {', '.join(row.fired)}" if row.fired else ""
        note = f"{against}; tier {row.tier or '–'}{fired}"
        found.append(
            Point(panel, quantity=GAIN, y=PP * margin.mean, low=ends[0], high=ends[1], logs=logs, note=note, **known)  # type: ignore[arg-type]
        )
        for what, value in _numbers(row).items():
            found.append(Point(panel, quantity=what, y=value, logs=logs, **known))  # type: ignore[arg-type]
    return found


def _numbers(row: Survivor) -> dict[str, float]:
    cosine = "cosine of updates, deep blocks" if row.of_updates else "cosine of credit, deep states"
    numbers = {"share of backprop's own gain": row.share, cosine: row.cosine, "tier": row.tier}
    return {what: float(value) for what, value in numbers.items() if value is not None}


def plot_survival(table: Table, width: Width = "two", height: float | None = None) -> Figure:
    """Draw the survival figure: a line a method, so that it is as high as there are methods unless asked.

    Args:
        table: From ``survival_table``.
        width: One or two text columns.
        height: Of the whole figure in inches; None: as high as its lines make it.
    """
    page = Page(INCHES[width])
    add_legend(page, [(verdict, handle(style)) for verdict, style in _STYLES.items()])
    columns = 2 if width == "two" else 1
    shown = [panel for panel in table.panels if not panel.empty]
    groups = [shown[start : start + columns] for start in range(0, len(shown), columns)]
    rows = [[_slot(table, panel) for panel in group] for group in groups]
    heights = [max(0.6, _ROW * (max(len(_drawn(table, panel)) for panel in group) + 1)) for group in groups]
    notes = [*table.notes, *closed(table.panels)]
    stretch = 1.0 if height is None else (height - fixed_height(page, rows, notes)) / sum(heights)
    for row, natural in zip(rows, heights, strict=True):
        add_row(page, row, max(LEAST_AXES, stretch * natural))
    add_notes(page, notes)
    return page.figure()


def _slot(table: Table, panel: Panel) -> Slot:
    return Slot(panel.title, lambda axes: _paint(axes, table, panel), caption=panel.caption, right=0.15)


def _drawn(table: Table, panel: Panel) -> list[Point]:
    return [point for point in table.of(panel.key) if point.quantity == GAIN]


def _paint(axes: Axes, table: Table, panel: Panel) -> None:
    points = _drawn(table, panel)
    place, inch = axes.get_position(), 1 / axes.figure.get_size_inches()[0]  # type: ignore[union-attr]
    room = _NAMES * inch
    axes.set_position((place.x0 + room, place.y0, place.width - room, place.height))
    tier = {p.x: int(p.y or 0) for p in table.of(panel.key) if p.quantity == "tier"}
    for at, point in enumerate(points):
        style = _STYLES[point.series]
        color = style.color if not panel.caption else GREY
        if tier.get(point.x, 0) % 2:
            axes.axhspan(at - 0.5, at + 0.5, color=PALE, linewidth=0)
        if point.low is not None and point.high is not None:
            axes.plot([point.low, point.high], [at, at], color=color, linewidth=1.0)
        axes.plot([point.y or 0.0], [at], color=color, marker=style.marker, markersize=4, linestyle="")
        if point.x in tier:
            axes.text(1.01, at, str(tier[point.x]), transform=axes.get_yaxis_transform(), fontsize=SMALL, va="center")
    for limit in (0.0, Depth.threshold):
        axes.axvline(limit, color=INK, linewidth=0.6, linestyle=(0, (4, 2)))
    if panel.caption:
        axes.set_facecolor(NEUTRAL)
    axes.set_yticks(range(len(points)), [str(point.x) for point in points], fontsize=SMALL)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.set_xlabel(panel.x_label)
    axes.grid(True, axis="x")
