"""The network strip: embed → blocks → LN → head → loss, and where each rule injects its credit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from creditscope.figures.page import MARGIN, Box, Page, fit, wrap
from creditscope.figures.style import BODY, GREY, INK, SMALL, LineStyle
from creditscope.figures.table import Series, Strip
from creditscope.records.rule_card import Sketch

_MOST_BLOCKS = 6
_MOST_RULES = 5
_MOST_METHODS = 3
# Boxes that a part of a rule's route is drawn through.
_PARTS = {"head": ("head",), "norm": ("norm",), "block": ("block", "gap")}


@dataclass(frozen=True)
class Node:
    """One box of the strip."""

    text: str
    kind: str
    x: float


def add_strip(page: Page, strip: Strip, series: Sequence[Series], styles: Mapping[str, LineStyle]) -> None:
    """Append the strip to a page.

    Args:
        page: The page.
        strip: The network and the rules present.
        series: The figure's series, for the rules' colours.
        styles: LineStyle by series.
    """
    inner = page.width - 2 * MARGIN
    label, room = 0.62, 2.1
    rules = strip.rules[:_MOST_RULES]
    named = [_methods(rule.name.partition("(")[0], series) for rule in rules]
    row, boxes = 0.23, 0.34
    height = boxes + row * sum(max(1, len(methods)) for methods in named) + 0.1
    nodes = _nodes(strip, label + 0.05, inner - room - 0.02)

    def paint(box: Box) -> None:
        axes = box.axes(0, 0, inner, height)
        axes.set_xlim(0, inner)
        axes.set_ylim(0, height)
        axes.set_axis_off()
        _boxes(axes, nodes, strip, height - boxes / 2)
        top = height - boxes
        for rule, methods in zip(rules, named, strict=True):
            # A route that several drawn methods share has the colour of none; their names have their own.
            color = styles[methods[0].label].color if len(methods) == 1 else INK if methods else GREY
            y = top - row / 2
            text = rule.sketch.text if rule.sketch else "where its credit enters is not stated in the log"
            names = [(item.label, styles[item.label].color) for item in methods] or [(rule.name, GREY)]
            for at, (name, own) in enumerate(names):
                axes.text(
                    label,
                    y - at * row * 0.62,
                    fit(name, label * 0.9, BODY),
                    fontsize=BODY,
                    va="center",
                    ha="right",
                    color=own,
                    weight="bold",
                )
            axes.text(inner - room + 0.05, y, wrap(text, room - 0.05, SMALL), fontsize=SMALL, va="center", color=INK)
            if rule.sketch:
                _credit(axes, rule.sketch, nodes, y, color)
            top -= row * max(1, len(methods))

    page.add(height, paint)


def _methods(rule: str, series: Sequence[Series]) -> list[Series]:
    """The drawn methods of a rule: trained ones, else its baselines; of many, the first few."""
    mine = [item for item in series if item.rule == rule]
    return ([item for item in mine if item.role != "baseline"] or mine)[:_MOST_METHODS]


def _nodes(strip: Strip, left: float, right: float) -> list[Node]:
    depth = strip.depth
    if depth is None:
        blocks = [("$f_0$", "block"), ("…", "gap"), ("$f_{L-1}$", "block")]
    elif depth <= _MOST_BLOCKS:
        blocks = [(f"$f_{{{i}}}$", "block") for i in range(depth)]
    else:
        blocks = [("$f_0$", "block"), ("$f_1$", "block"), ("…", "gap"), (f"$f_{{{depth - 1}}}$", "block")]
    norm = [] if strip.terminal_ln is False else [("LN" if strip.terminal_ln else "(LN)", "norm")]
    named = [("embed", "embed"), *blocks, *norm, ("head", "head"), ("loss", "loss")]
    step = (right - left) / len(named)
    return [Node(text, kind, left + step * (i + 0.5)) for i, (text, kind) in enumerate(named)]


def _boxes(axes: Axes, nodes: Sequence[Node], strip: Strip, y: float) -> None:
    step = nodes[1].x - nodes[0].x
    half = min(0.23, step * 0.38)
    faces = {"embed": "#e8eef4", "block": "#f6f0e2", "norm": "#ececec", "head": "#e8eef4", "loss": "white"}
    for node in nodes:
        if node.kind != "gap":
            axes.add_patch(
                FancyBboxPatch(
                    (node.x - half, y - 0.095),
                    2 * half,
                    0.19,
                    boxstyle="round,pad=0,rounding_size=0.035",
                    facecolor=faces[node.kind],
                    edgecolor=INK,
                    linewidth=0.6,
                    linestyle="--" if node.text == "(LN)" else "-",
                )
            )
        axes.text(node.x, y - 0.005, node.text, ha="center", va="center", fontsize=BODY, color=INK)
    for before, after in pairwise(nodes):
        _arrow(axes, (before.x + half, y), (after.x - half, y), INK, "-", 0.7)


def _credit(axes: Axes, sketch: Sketch, nodes: Sequence[Node], y: float, color: str) -> None:
    """One row: solid where the signal is exact, dashed where it went through a random matrix."""
    loss = nodes[-1]
    if sketch.route == "direct":
        exact = [node for node in nodes if node.kind in ("head", "norm")]
        _chain(axes, [*exact, loss], y, color, set())
        fed = [node for node in nodes if node.kind in ("embed", "block", "gap")]
        low = y - 0.06
        axes.plot([loss.x, loss.x], [y, low], color=color, linewidth=0.9, linestyle=(0, (2, 1)))
        axes.plot([fed[0].x, loss.x], [low, low], color=color, linewidth=0.9, linestyle=(0, (2, 1)))
        for node in fed:
            if node.kind != "gap":
                _arrow(axes, (node.x, low), (node.x, y + 0.09), color, "-", 0.9)
    elif sketch.route == "chain":
        _chain(axes, nodes, y, color, {kind for part in sketch.random for kind in _PARTS[part]})


def _chain(axes: Axes, nodes: Sequence[Node], y: float, color: str, random: set[str]) -> None:
    for before, after in pairwise(nodes):
        _arrow(axes, (after.x, y), (before.x + 0.02, y), color, "--" if after.kind in random else "-", 0.9)
    for node in nodes[:-1]:
        if node.kind != "gap":
            axes.plot([node.x], [y], marker="o", markersize=2.2, color=color)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str, line: str, width: float
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=4.5,
            shrinkA=0,
            shrinkB=0,
            color=color,
            linewidth=width,
            linestyle=(0, (2, 1)) if line == "--" else "-",
        )
    )
