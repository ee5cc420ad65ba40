"""Drawing shared by the artefacts: axes, lines with bands, reference lines. Reads tables, computes nothing new."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox

from creditscope.figures.page import pretty, text_width, wrap
from creditscope.figures.style import INK, LABEL, SMALL, LineStyle
from creditscope.figures.table import STOPPED, Panel, Point, coordinates

_MARKS = 9


def dress(axes: Axes, panel: Panel) -> None:
    """Labels and the dotted grid.

    Args:
        axes: The panel's axes.
        panel: Its text.
    """
    tall = inches_high(axes)
    axes.set_xlabel(pretty(panel.x_label))
    axes.set_ylabel(wrap(panel.y_label, tall + 0.15, LABEL), linespacing=1.0)
    axes.grid(True, which="major")


def decades(axes: Axes, points: Sequence[Point], minor_grid: bool = False) -> None:
    """A logarithmic y axis over whole decades that hold every value.

    Args:
        axes: The panel's axes.
        points: What it shows.
        minor_grid: Whether to draw the minor grid.
    """
    values = [v for p in points for v in (p.y, p.high) if v is not None and v > 0]
    # A lower end near zero would stretch the axis over decades that hold no run.
    values += [p.low for p in points if p.low is not None and p.y is not None and p.low > p.y / 10]
    low = math.floor(math.log10(min(values)) - 0.25)
    high = math.ceil(math.log10(max(values)) + 0.25)
    axes.set_yscale("log")
    axes.set_ylim(10.0**low, 10.0**high)
    tall = inches_high(axes)
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=max(2, min(7, int(tall / 0.2)))))
    # Over many decades the ticks between them would run together: only whole decades are left.
    between = tuple(float(n) for n in range(2, 10)) if high - low <= 6 else (1.0,)
    axes.yaxis.set_minor_locator(LogLocator(base=10, subs=between, numticks=60))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if minor_grid:
        axes.grid(True, which="minor", axis="y", linewidth=0.25, alpha=0.7)


def inches_high(axes: Axes) -> float:
    """Height of a panel in inches.

    Args:
        axes: The panel's axes.
    """
    return float(axes.get_position().height * axes.get_figure(root=True).get_size_inches()[1])  # type: ignore[union-attr]


def linear_ticks(inches: float = 1.75) -> MaxNLocator:
    """Round numbers along a linear axis, fewer along a short one.

    Args:
        inches: Its length.
    """
    return MaxNLocator(max(2, min(6, int(inches / 0.2))), steps=[1, 2, 5, 10])


def epochs(axes: Axes, points: Sequence[Point]) -> None:
    """Whole numbers along x, with a little air at both ends.

    Args:
        axes: The panel's axes.
        points: What it shows.
    """
    numbers = [point.x for point in points if isinstance(point.x, float)]
    last = max(numbers, default=1.0)
    air = max(last * 0.02, 0.2)
    axes.set_xlim(min(numbers, default=0.0) - air, last + air)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))


def draw_lines(axes: Axes, points: Sequence[Point], styles: Mapping[str, LineStyle], dotted: bool = False) -> None:
    """Every trajectory: mean, band, and a cross where a run ended early.

    Args:
        axes: The panel's axes, with their limits set.
        points: What the axes can show.
        styles: LineStyle by series.
        dotted: Draw thin dotted lines without markers, for a second axis.
    """
    seen: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        seen.setdefault((point.series, point.branch), []).append(point)
    ends = [point.x for point in points if isinstance(point.x, float)]
    span = max(ends, default=0.0) - min(ends, default=0.0)
    for number, ((series, branch), line) in enumerate(seen.items()):
        style = styles[series]
        x, y = coordinates(line)
        # Equal spacing in epochs, whatever the length of the line.
        step = max(1, round(len(x) * span / ((x[-1] - x[0]) or 1.0) / _MARKS))
        axes.plot(
            x,
            y,
            color=style.color,
            linestyle=":" if dotted else style.line,
            marker="" if dotted or branch else style.marker,
            markevery=(min(len(x) - 1, (number * step) // 3), step),
            markersize=3.2,
            linewidth=0.7 if branch else 1.0,
            zorder=3,
        )
        _band(axes, line, style.color)
        for point in line:
            if point.note == STOPPED:
                axes.plot(
                    *coordinates([point]), marker="x", color=style.color, markersize=6, markeredgewidth=1.4, zorder=5
                )


def _band(axes: Axes, points: Sequence[Point], color: str) -> None:
    log = axes.get_yscale() == "log"
    held = [
        (p.x, p.y if log and p.low <= 0 else p.low, p.high)
        for p in points
        if isinstance(p.x, float) and p.y is not None and p.low is not None and p.high is not None
    ]
    if len(held) < 2:
        return
    x, low, high = zip(*held, strict=True)
    axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0, zorder=2)


DASHES = ((0, (4, 2)), (0, (4, 1.5, 1, 1.5)))


def reference_lines(axes: Axes, lines: Sequence[tuple[Point, str]], data: Sequence[tuple[float, float]]) -> None:
    """Horizontal lines, each with its text at the end, above or below, where they cover least of the data.

    Args:
        axes: The panel's axes, with their limits set.
        lines: Value and text.
        data: What else the panel shows, from ``trace``.
    """
    levels = [float(axes.transData.transform((axes.get_xlim()[0], line.y or 0.0))[1]) for line, _ in lines]
    taken: list[Bbox] = []
    for number, (line, text) in enumerate(lines):
        assert line.y is not None
        axes.axhline(line.y, color=INK, linestyle=DASHES[number % len(DASHES)], linewidth=0.7, zorder=1.5)
        spots = [
            (right, above, _label_box(axes, text, line.y, right, above))
            for above in (True, False)
            for right in (True, False)
        ]

        def cost(spot: tuple[bool, bool, Bbox]) -> int:
            box = spot[2]
            outside = box.y0 < axes.bbox.y0 or box.y1 > axes.bbox.y1
            crowded = any(box.overlaps(other) for other in taken) or any(box.y0 <= level <= box.y1 for level in levels)
            around = box.padded(3.0)  # markers are wider than the lines they sit on
            return 1000 * (int(outside) + int(crowded)) + sum(bool(around.contains(x, y)) for x, y in data)

        right, above, box = min(spots, key=cost)
        taken.append(box)
        axes.annotate(
            pretty(text),
            xy=(0.985 if right else 0.015, line.y),
            xycoords=("axes fraction", "data"),
            xytext=(0, 1.5 if above else -1.5),
            textcoords="offset points",
            ha="right" if right else "left",
            va="bottom" if above else "top",
            fontsize=SMALL,
            color=INK,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4},
        )


def _label_box(axes: Axes, text: str, y: float, right: bool, above: bool) -> Bbox:
    """Where a label would stand, in pixels."""
    dpi = axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    width = text_width(pretty(text), SMALL) * dpi
    height = SMALL * 1.2 / 72 * dpi
    line = float(axes.transData.transform((axes.get_xlim()[0], y))[1])
    left = axes.bbox.x0 + (0.985 * axes.bbox.width - width if right else 0.015 * axes.bbox.width)
    gap = 1.5 / 72 * dpi
    bottom = line + gap if above else line - gap - height
    return Bbox.from_bounds(left, bottom, width, height)


def trace(axes: Axes, points: Sequence[Point]) -> list[tuple[float, float]]:
    """The drawn lines as pixels, close enough together that a label cannot slip between two.

    Args:
        axes: Axes with their limits set.
        points: What they show.
    """
    pixels: list[tuple[float, float]] = []
    lines: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        lines.setdefault((point.series, point.branch), []).append(point)
    for line in lines.values():
        vertices = [axes.transData.transform(pair) for pair in zip(*coordinates(line), strict=True)]
        for start, end in pairwise(vertices):
            pixels += [tuple(start + (end - start) * step / 20) for step in range(21)]
    return pixels


# A name longer than this, in inches, goes into a legend.
_LONGEST_END = 1.0
_END_STEP = SMALL * 1.2 / 72


def end_room(names: Sequence[str], height: float) -> float | None:
    """Inches that the names of lines need right of a panel; None where they are too long or too many.

    Args:
        names: Of the lines.
        height: Of the axes, in inches.
    """
    widest = max((text_width(pretty(name), SMALL) for name in names), default=0.0)
    return None if widest > _LONGEST_END or len(names) * _END_STEP > height else widest + 0.13


def label_ends(axes: Axes, points: Sequence[Point], styles: Mapping[str, LineStyle]) -> None:
    """Each line's name beside its end, in its colour; names that would touch move apart.

    Args:
        axes: Axes with their limits set.
        points: What they show.
        styles: LineStyle by series.
    """
    ends: dict[str, tuple[float, float]] = {}
    for point in points:
        if isinstance(point.x, float) and point.y is not None and not point.branch:
            ends[point.series] = max(ends.get(point.series, (-math.inf, 0.0)), (point.x, point.y))
    step = _END_STEP / inches_high(axes)

    def level(y: float) -> float:
        return float(axes.transAxes.inverted().transform(axes.transData.transform((axes.get_xlim()[0], y)))[1])

    placed = sorted((min(1.0, max(0.0, level(y))), name) for name, (_, y) in ends.items())
    heights = [height for height, _ in placed]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + step)
    top = 1.0
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], top)
        top = heights[i] - step
    for height, (_, name) in zip(heights, placed, strict=True):
        axes.annotate(
            pretty(name),
            (1.0, height),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=SMALL,
            color=styles[name].color,
            annotation_clip=False,
        )


def handle(style: LineStyle) -> Line2D:
    """The legend's picture of a style.

    Args:
        style: The style.
    """
    return Line2D([], [], color=style.color, marker=style.marker, linestyle=style.line, markersize=4, linewidth=1.0)
