"""Artefact 1, ``hero``: the drawing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from creditscope.figures.draw import (
    decades,
    dress,
    end_room,
    handle,
    inches_high,
    label_ends,
    linear_ticks,
    reference_lines,
    trace,
)
from creditscope.figures.hero_text import QUADRANTS, SHORT
from creditscope.figures.page import LEFT, Body, Page, Slot, add_body, add_legend, text_width
from creditscope.figures.strip import add_strip
from creditscope.figures.style import (
    BAD,
    GOOD,
    GREY,
    HALF_LEFT,
    HEIGHTS,
    INCHES,
    INK,
    MOST_HEIGHT,
    NEUTRAL,
    SMALL,
    LineStyle,
    Width,
    line_styles,
)
from creditscope.figures.table import EXACT, Panel, Point, Table, coordinates, drawable
from creditscope.figures.text import sci

# Wide enough on the left for the text of the lower quadrant.
_GAMMA_RANGE = (-0.28, 1.12)


def plot_hero(table: Table, width: Width = "two", height: float | None = None) -> Figure:
    """Draw the hero figure. One column has no network strip, and its captions stand below all panels.

    Args:
        table: From ``hero_table``.
        width: One or two text columns.
        height: Of the whole figure in inches; None: as the width has it.
    """
    chosen = line_styles(table.series)
    page = Page(INCHES[width])
    wide = width == "two"
    if table.strip is not None and wide:
        add_strip(page, table.strip, table.series, chosen)
    shown = [panel.key for panel in table.panels if not panel.empty]
    last = shown[-1]
    named = {point.series for point in drawable(table.of(last, kind="point"), log=last == "C")}
    room = end_room([item.label for item in table.series], 0.9) if named == {s.label for s in table.series} else None
    # Half a column is too narrow for names beside it.
    if room is None or last == "A" or (not wide and len(shown) == 2):
        room = None
        add_legend(page, [(item.label, handle(chosen[item.label])) for item in table.series])
    paints = {"A": _paint_pair, "B": _paint_cosines, "C": _paint_references}

    def slot(panel: Panel) -> Slot:
        ends = room is not None and panel.key == last

        def paint(axes: Axes) -> None:
            paints[panel.key](axes, table, chosen)
            if ends:
                label_ends(axes, drawable(table.of(panel.key, kind="point"), log=panel.log), chosen)

        return Slot(
            title=panel.title,
            paint=paint,
            caption=panel.caption if wide else "",
            right=room if ends and room is not None else 0.05,
            weight=1.12 if ends else 1.0,
            left=LEFT if wide else HALF_LEFT,
        )

    body = Body(3 if wide else 2, HEIGHTS[width], height, MOST_HEIGHT[width])
    below = [] if wide else [f"({panel.key}) {panel.caption}" for panel in table.panels if not panel.empty]
    add_body(page, table.panels, slot, [*filter(None, below), *table.notes], body)
    return page.figure()


def _bars(axes: Axes, point: Point, style: LineStyle, hollow: bool = False) -> None:
    assert isinstance(point.x, float)
    assert point.y is not None
    y_error = None if point.low is None else [[point.y - point.low], [point.high - point.y]]  # type: ignore[operator]
    x_error = None if point.x_low is None else [[point.x - point.x_low], [point.x_high - point.x]]  # type: ignore[operator]
    axes.errorbar(
        [point.x],
        [point.y],
        yerr=y_error,
        xerr=x_error,
        color=style.color,
        marker=style.marker,
        markersize=4.6,
        markerfacecolor="white" if hollow else style.color,
        markeredgewidth=0.8,
        elinewidth=0.8,
        linestyle="none",
        zorder=4,
    )


def _paint_pair(axes: Axes, table: Table, chosen: dict[str, LineStyle]) -> None:
    points = table.of("A", kind="point")
    dress(axes, table.panel("A"))
    x = [v for p in points for v in (p.x, p.x_low, p.x_high) if isinstance(v, float)]
    y = [v for p in points for v in (p.y, p.high) if v is not None]
    lines = table.of("A", kind="line")
    chance = lines[0].y if lines else None
    wide = axes.get_position().width * axes.get_figure(root=True).get_size_inches()[0]  # type: ignore[union-attr]
    # The text of the lower left quadrant wants its inches in half a column too.
    least = _GAMMA_RANGE[0] * max(1.0, 1.75 / wide)
    left, right = min(least, min(x) - 0.06), max(_GAMMA_RANGE[1], max(x) + 0.06)
    top = min(1.03, max(max(y) * 1.2, 2.5 * (chance or 0.0), 0.05))
    axes.set_xlim(left, right)
    tall = inches_high(axes)
    # The quadrants below chance hold a line of text, so that a low panel begins below 0.
    share = 0.14 / tall
    axes.set_ylim(0 if chance is None else min(0.0, (chance - share * top) / (1 - share)), top)
    axes.xaxis.set_major_locator(linear_ticks() if wide > 1.2 else MaxNLocator(3, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(linear_ticks(tall))
    axes.axvline(0, color=GREY, linewidth=0.7, zorder=1.5)
    if chance is not None:
        axes.axhline(chance, color=GREY, linewidth=0.7, zorder=1.5)
        bottom = axes.get_ylim()[0]
        tints = (("both", 0, right, chance, top), ("neither", left, 0, bottom, chance))
        others = (("aligned", 0, right, bottom, chance), ("accurate", left, 0, chance, top))
        for name, x0, x1, y0, y1 in (*tints, *others):
            colour = {"both": GOOD, "neither": BAD}.get(name, NEUTRAL)
            axes.fill_between([x0, x1], y0, y1, color=colour, linewidth=0, zorder=0)
            _quadrant_label(axes, name, (x0, x1, y0, y1), points)
    for point in points:
        _bars(axes, point, chosen[point.series])


def _quadrant_label(axes: Axes, name: str, box: tuple[float, float, float, float], points: Sequence[Point]) -> None:
    """Put the label in the part of its quadrant that lies farthest from every marker."""
    x0, x1, y0, y1 = box
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    inches = axes.get_position().size * axes.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    room = inches * np.array([(x1 - x0) / (right - left), (y1 - y0) / (top - bottom)]) - 0.02
    # The whole text before the short one, level before upright; what fits in no way is left out.
    ways = [(texts[name], upright) for texts in (QUADRANTS, SHORT) for upright in (False, True)]
    sizes = [np.array([text_width(text, SMALL), SMALL / 72]) for text, _ in ways]
    fitting = [i for i, (_, upright) in enumerate(ways) if (sizes[i][:: -1 if upright else 1] <= room).all()]
    if not fitting:
        return
    (text, upright), size = ways[fitting[0]], sizes[fitting[0]]
    half = (size[::-1] if upright else size) / 2

    def place(x: float, y: float) -> Any:
        return np.array([(x - left) / (right - left), (y - bottom) / (top - bottom)]) * inches

    corners = np.array([place(x0, y0), place(x1, y1)])
    inner = corners + np.array([half + 0.045, -half - 0.045])
    middle = corners.mean(axis=0)
    columns = sorted((middle[0], *inner[:, 0]), key=lambda x: abs(x - middle[0]))
    rows = (inner[1, 1], inner[0, 1], middle[1])
    markers = [place(x, y) for x, y in zip(*coordinates(points), strict=True)]

    def clearance(spot: Any) -> float:
        gaps = [float(np.hypot(*np.maximum(np.abs(marker - spot) - half, 0))) for marker in markers]
        return min(0.08, *gaps)

    spots = [np.array([x, y]) for x in columns for y in rows]
    x, y = max(spots, key=clearance) / inches
    axes.text(
        x,
        y,
        text,
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=SMALL,
        color="#555555",
        style="italic",
        rotation=90 if upright else 0,
        zorder=2,
    )


def _paint_cosines(axes: Axes, table: Table, chosen: dict[str, LineStyle]) -> None:
    points = drawable(table.of("B", kind="point"), log=False)
    dress(axes, table.panel("B"))
    axes.axhline(0, color=INK, linewidth=0.7, zorder=1.5)
    for item in table.series:
        mine = [point for point in points if point.series == item.label]
        style = chosen[item.label]
        axes.plot(*coordinates(mine), color=style.color, linestyle=style.line, zorder=3)
        for point in mine:
            _bars(axes, point, style, hollow=point.note == EXACT)
    _states(axes, points)
    values = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    axes.set_ylim(min(-0.15, min(values) - 0.08), max(1.1, max(values) + 0.08))
    tall = inches_high(axes)
    axes.yaxis.set_major_locator(linear_ticks(tall))


def _paint_references(axes: Axes, table: Table, chosen: dict[str, LineStyle]) -> None:
    points = drawable(table.of("C", kind="point"), log=True)
    lines = table.of("C", kind="line")
    dress(axes, table.panel("C"))
    decades(axes, [*points, *lines], minor_grid=True)
    for item in table.series:
        mine = [point for point in points if point.series == item.label]
        style = chosen[item.label]
        axes.plot(*coordinates(mine), color=style.color, linestyle=style.line, zorder=3)
        for point in mine:
            _bars(axes, replace(point, low=point.y) if point.low is not None and point.low <= 0 else point, style)
    _states(axes, points)
    reference_lines(axes, [(line, f"floor {sci(line.y or 0.0)}") for line in lines], trace(axes, points))


def _states(axes: Axes, points: Sequence[Point]) -> None:
    states = [point.x for point in points if isinstance(point.x, float)]
    axes.set_xlim(min(0.0, *states) - 0.25, max(states) + 0.25)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
