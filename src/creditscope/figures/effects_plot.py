"""The effects of an explanation with their intervals, the largest first: one panel a measure."""

import csv
import io
import math
import textwrap
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from creditscope.figures.style import BLUE, GREY, INCHES, INK, RED, SMALL, Width, styled
from creditscope.figures.write import encoded
from creditscope.protocol.effects import Measure
from creditscope.protocol.explanation import Change, Explanation
from creditscope.records import write_atomic

_COLOURS = {"matters": RED, "open": GREY, "does not matter": BLUE}
_ROW, _FRAME = 0.19, 1.2  # inches


def plot_effects(found: Explanation, width: Width = "two") -> Figure:
    """One panel a measure, one row a change: the effect, its 95 % interval, and whether it matters.

    Args:
        found: The explanation.
        width: One or two text columns.
    """
    measures = [m for m in found.measures if any(change.on(m) for change in found.changes)]
    rows = sorted(found.changes, key=lambda change: change.size)
    pairs = sorted(found.pairs, key=lambda change: change.size)
    shown = [*pairs, *rows]
    with styled():
        figure = Figure(figsize=(INCHES[width], _FRAME + _ROW * len(shown)), layout="constrained")
        axes = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
        for panel, measure in zip(axes, measures, strict=True):
            for at, change in enumerate(shown):
                _draw(panel, measure, change, at)
            if measure.unit == "×":
                panel.set_xscale("log")
            panel.axvline(1.0 if measure.unit == "×" else 0.0, color=INK, linewidth=0.7, zorder=1)
            panel.set_xlabel(textwrap.fill(f"{measure.label} ({_unit(measure)})", 22), fontsize=SMALL)
            panel.tick_params(labelsize=SMALL)
            panel.grid(True, axis="x")
        names = [f"interaction: {_name(change)}" for change in pairs] + [_name(change) for change in rows]
        axes[0].set_yticks(range(len(shown)), names)
        axes[0].set_ylim(-0.7, len(shown) - 0.3)
        figure.suptitle(f"{found.method}: what each change does ({len(found.base.runs)} seeds, paired)")
        marks = [Line2D([], [], color=colour, marker="o", markersize=3.2, label=w) for w, colour in _COLOURS.items()]
        figure.legend(handles=marks, loc="outside lower right", ncols=len(marks), frameon=False, fontsize=SMALL)
    return figure


def _draw(panel: Axes, measure: Measure, change: Change, at: int) -> None:
    found = change.on(measure)
    if found is None:
        return
    ends = [found.margin.low(), found.margin.mean, found.margin.high()]
    low, middle, high = (math.exp(end) if measure.unit == "×" else end * _factor(measure) for end in ends)
    colour = _COLOURS[found.word]
    if math.isfinite(low) and math.isfinite(high):
        panel.plot([low, high], [at, at], color=colour, linewidth=1.2, zorder=2)
    panel.plot([middle], [at], marker="o", markersize=3.2, color=colour, zorder=3)


def _name(change: Change) -> str:
    lost = change.trial.diverged
    return f"{change.name} ({lost} of {len(change.trial.runs)} diverge)" if lost else change.name


def _factor(measure: Measure) -> float:
    return 100.0 if measure.unit in ("%", "pp") else 1.0


def _unit(measure: Measure) -> str:
    return "ratio" if measure.unit == "×" else "pp" if _factor(measure) > 1 else "difference"


def write_effects(found: Explanation, out: Path) -> None:
    """Write the picture, and next to it a CSV with its numbers.

    Args:
        found: The explanation.
        out: ``.pdf``, ``.png`` or ``.svg``.
    """
    content = encoded(plot_effects(found), out.suffix)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("switch", "change", "measure", "scale", "mean", "low", "high", "p", "q", "outcome", "logs"))
    for change in (*found.changes, *found.pairs, *found.screened):
        for each in change.effects:
            plain = each.to_dict()
            values = [plain[key] for key in ("scale", "mean", "low", "high", "p", "q", "outcome")]
            logs = " ".join(run.name for run in change.trial.runs)
            lines.writerow((change.name, change.words, each.measure.name, *values, logs))
    write_atomic(out, content)
    write_atomic(out.with_suffix(".csv"), text.getvalue().encode())
