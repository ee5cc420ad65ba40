"""Artefact 2, ``penalty-rescue``: the drawing."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.figures.draw import (
    DASHES,
    decades,
    draw_lines,
    dress,
    epochs,
    handle,
    inches_high,
    linear_ticks,
    reference_lines,
    trace,
)
from creditscope.figures.page import Body, Page, Slot, add_body, add_legend, fit, wrap
from creditscope.figures.penalty_rescue import CONTROL, COSINE, RHO, RIGHT
from creditscope.figures.style import (
    BLUE,
    BODY,
    HEIGHTS,
    INCHES,
    INK,
    LABEL,
    MOST_HEIGHT,
    RED,
    SMALL,
    LineStyle,
    Width,
    line_styles,
)
from creditscope.figures.table import Panel, Point, Table, drawable
from creditscope.figures.text import sci

# Hatching means a penalty, in (c) alone: the two shades tell these apart.
_PAIR = {COSINE: "#4a4a4a", RHO: "#c4c4c4"}
# A control that is this many times higher than what it controls would squash it: its bars are cut.
_CUT = 2.5


def plot_penalty_rescue(table: Table, width: Width = "two", height: float | None = None) -> Figure:
    """Draw the penalty-rescue figure.

    Args:
        table: From ``penalty_rescue_table``.
        width: One or two text columns.
        height: Of the whole figure in inches; None: as the width has it.
    """
    chosen = line_styles(table.series)
    page = Page(INCHES[width])
    entries: list[tuple[str, Artist]] = [(s.label, handle(chosen[s.label])) for s in table.series]
    if drawable(table.of(RIGHT, kind="point"), log=True):
        entries.append(("‖g_L‖ (right axis)", Line2D([], [], color=INK, linestyle=":", linewidth=1.0)))
    if table.of("b"):
        entries += [(name, _patch(name)) for name in (COSINE, RHO)]
    entries += [
        (f"{line.series} {line.y:.3f}", Line2D([], [], color=INK, linestyle=DASHES[0], linewidth=0.9))
        for line in table.of("c", kind="line")
    ]
    add_legend(page, entries)
    paints = {"a": _paint_streams, "b": _paint_pairs, "c": _paint_accuracies}
    shapes = {"a": (0.42 if width == "two" else 0.52, 1.1), "b": (0.05, 1.12), "c": (0.05, 0.9)}

    def slot(panel: Panel) -> Slot:
        right, weight = shapes[panel.key]
        return Slot(
            title=panel.title,
            paint=lambda axes: paints[panel.key](axes, table, chosen),
            right=right,
            weight=weight,
        )

    body = Body(3 if width == "two" else 1, HEIGHTS[width], height, MOST_HEIGHT[width])
    notes = [*table.notes, *_cut_bars(table)]
    add_body(page, table.panels, slot, notes, body)
    return page.figure()


def _patch(name: str) -> Patch:
    return Patch(facecolor=_PAIR[name], edgecolor=INK, linewidth=0.5)


def _cut(bars: Sequence[Point]) -> tuple[float, list[Point]]:
    """How high the bars reach that are shown whole, and those that would squash them and are cut."""
    reach = [(bar, bar.y if bar.high is None else bar.high) for bar in bars if bar.y is not None]
    rest = max((value or 0.0 for bar, value in reach if str(bar.x) != CONTROL), default=0.0)
    whole = max(rest, 0.06)
    cut = [bar for bar, value in reach if str(bar.x) == CONTROL and rest and (value or 0.0) > _CUT * whole]
    return (whole if cut else max((value or 0.0 for _, value in reach), default=0.0)), cut


def _cut_bars(table: Table) -> list[str]:
    _, cut = _cut(table.of("b", kind="bar"))
    if not cut:
        return []
    values = " and ".join(dict.fromkeys(f"{bar.y:.2f}" for bar in cut))
    return [f"(b): the bars of the {CONTROL} are cut, at {values}."]


def _paint_streams(axes: Axes, table: Table, chosen: dict[str, LineStyle]) -> None:
    streams = drawable(table.of("a", kind="point"), log=True)
    dress(axes, table.panel("a"))
    decades(axes, streams)
    epochs(axes, streams)
    draw_lines(axes, streams, chosen)
    references = drawable(table.of(RIGHT, kind="point"), log=True)
    if not references:
        return
    right = axes.twinx()
    floor = table.of(RIGHT, kind="line")
    decades(right, [*references, *floor])
    tall = inches_high(axes)
    right.set_ylabel(wrap("median ‖g_L‖ per sample (dotted)", tall + 0.15, LABEL), linespacing=1.0)
    draw_lines(right, references, chosen, dotted=True)
    seen = [*trace(axes, streams), *trace(right, references)]
    reference_lines(right, [(line, f"floor {sci(line.y or 0.0)}") for line in floor], seen)


def _error(point: Point) -> list[list[float]] | None:
    if point.y is None or point.low is None or point.high is None:
        return None
    return [[point.y - point.low], [point.high - point.y]]


def _bar(axes: Axes, x: float, width: float, point: Point, face: str, hatch: str) -> None:
    assert point.y is not None
    axes.bar(
        [x],
        [point.y],
        width,
        color=face,
        hatch=hatch,
        edgecolor=INK,
        linewidth=0.5,
        yerr=_error(point),
        error_kw={"elinewidth": 0.8, "ecolor": INK, "capsize": 1.8},
        zorder=3,
    )


def _paint_pairs(axes: Axes, table: Table, chosen: dict[str, LineStyle]) -> None:
    bars = table.of("b", kind="bar")
    dress(axes, table.panel("b"))
    axes.grid(False, axis="x")
    names = list(dict.fromkeys(str(bar.x) for bar in bars if bar.y is not None))
    reach, cut = _cut(bars)
    # Above the highest bar its number needs room, whatever the panel's height.
    tall = inches_high(axes)
    ceiling = max(0.1, reach * tall / max(tall - 0.45, 0.4 * tall))
    for bar in bars:
        if bar.y is not None:
            side = -0.2 if bar.series == COSINE else 0.2
            x = names.index(str(bar.x)) + side
            if bar in cut:
                _broken(axes, x, bar, ceiling)
                continue
            _bar(axes, x, 0.38, bar, _PAIR[bar.series], "")
            top = max(bar.y if bar.high is None else bar.high, 0.0)
            axes.annotate(
                f"{bar.y:z.2f}".replace("-", "−"),
                (x, top),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90,
                fontsize=SMALL,
                zorder=5,
            )
    axes.axhline(0, color=INK, linewidth=0.6, zorder=4)
    axes.set_xticks(range(len(names)), [_under(name, bars) for name in names], fontsize=SMALL)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.55, len(names) - 0.45)
    lows = [v for bar in bars for v in (bar.y, bar.low) if v is not None]
    axes.set_ylim(min(-0.05 * max(1.0, ceiling), min(lows) - 0.1 * ceiling), ceiling)
    axes.yaxis.set_major_locator(linear_ticks())


def _broken(axes: Axes, x: float, bar: Point, ceiling: float) -> None:
    """A bar that goes on beyond the axis: cut open near the top, its value inside."""
    axes.bar([x], [ceiling], 0.38, color=_PAIR[bar.series], edgecolor=INK, linewidth=0.5, zorder=3)
    for level in (0.78, 0.84):
        axes.plot(
            [x - 0.24, x + 0.24],
            [(level - 0.02) * ceiling, (level + 0.02) * ceiling],
            color="white",
            linewidth=1.6,
            zorder=4,
        )
    axes.annotate(
        f"{bar.y:.2f}",
        (x, 0.4 * ceiling),
        ha="center",
        va="center",
        rotation=90,
        fontsize=SMALL,
        zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )


def _under(name: str, bars: Sequence[Point]) -> str:
    """The text under a pair; a λ says at which epoch it was measured."""
    if not name.startswith("λ"):
        return name.replace(" ", "\n")
    epoch = next(bar.quantity for bar in bars if str(bar.x) == name).rsplit(" ", 1)[1]
    return f"{name.replace(' ', '')}\nep. {epoch}"


def _paint_accuracies(axes: Axes, table: Table, chosen: dict[str, LineStyle]) -> None:
    bars = table.of("c", kind="bar")
    dress(axes, table.panel("c"))
    axes.grid(False, axis="x")
    groups = list(dict.fromkeys(bar.series for bar in bars))
    ticks, labels = [], []
    for bar in bars:
        assert bar.y is not None
        plain = str(bar.x) == "no penalty"
        x = groups.index(bar.series) * 2.3 + (0.0 if plain else 1.0)
        _bar(axes, x, 0.8, bar, BLUE if bar.series == "bp" else RED, "" if plain else "////")
        axes.annotate(
            f"{bar.y:.3f}",
            (x, 0),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=SMALL,
            zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
        ticks.append(x)
        labels.append("λ=0" if plain else str(bar.x).replace(" ", ""))
    axes.set_xticks(ticks, labels, fontsize=SMALL)
    axes.tick_params(axis="x", length=0)
    for group in groups:
        mine = [x for x, bar in zip(ticks, bars, strict=True) if bar.series == group]
        axes.annotate(
            fit(group, 0.8, BODY),
            (sum(mine) / len(mine), 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -12),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=BODY,
        )
    axes.set_xlim(-0.65, max(ticks) + 0.65)
    lines = table.of("c", kind="line")
    values = [v for p in (*bars, *lines) for v in (p.y, p.high) if v is not None]
    axes.set_ylim(0, max(values) * 1.1)
    axes.yaxis.set_major_locator(linear_ticks())
    for line in lines:
        axes.axhline(line.y or 0.0, color=INK, linestyle=DASHES[0], linewidth=0.9, zorder=4)
