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
    linear_ticks,
    reference_lines,
    trace,
)
from creditscope.figures.page import Page, Slot, add_legend, add_notes, add_panels, fit, pretty
from creditscope.figures.penalty_rescue import COSINE, RHO, RIGHT
from creditscope.figures.style import BLUE, BODY, HEIGHTS, INCHES, INK, RED, SMALL, LineStyle, Width, line_styles
from creditscope.figures.table import Panel, Point, Table, drawable
from creditscope.figures.text import sci

_PAIR = {COSINE: ("#4a4a4a", ""), RHO: ("#c4c4c4", "////")}


def plot_penalty_rescue(table: Table, width: Width = "two") -> Figure:
    """Draw the penalty-rescue figure.

    Args:
        table: From ``penalty_rescue_table``.
        width: One or two text columns.
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
    shapes = {"a": (0.42, 1.1), "b": (0.05, 1.12), "c": (0.05, 0.9)}

    def slot(panel: Panel) -> Slot:
        right, weight = shapes[panel.key]
        return Slot(
            title=panel.title,
            paint=lambda axes: paints[panel.key](axes, table, chosen),
            right=right,
            weight=weight,
            empty=panel.empty,
        )

    add_panels(page, [slot(panel) for panel in table.panels], 3 if width == "two" else 1, HEIGHTS[width])
    add_notes(page, table.notes)
    return page.figure()


def _patch(name: str) -> Patch:
    face, hatch = _PAIR[name]
    return Patch(facecolor=face, hatch=hatch, edgecolor=INK, linewidth=0.5)


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
    right.set_ylabel(pretty("median ‖g_L‖ per sample (dotted)"))
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
    for bar in bars:
        if bar.y is not None:
            side = -0.2 if bar.series == COSINE else 0.2
            x = names.index(str(bar.x)) + side
            _bar(axes, x, 0.38, bar, *_PAIR[bar.series])
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
    values = [v for bar in bars for v in (bar.y, bar.low, bar.high) if v is not None]
    axes.set_ylim(min(-0.05, min(values) - 0.05), max(0.3, max(values) * 1.2))
    axes.yaxis.set_major_locator(linear_ticks())


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
