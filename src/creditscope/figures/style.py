"""How the figures look: type, sizes, colours and markers that still read in grey."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib

from creditscope.figures.table import Series

Width = Literal["one", "two"]
INCHES: dict[Width, float] = {"one": 3.35, "two": 7.0}

# Height of the axes; those of one column are lower where the figure would else be higher than a journal prints.
HEIGHTS: dict[Width, float] = {"one": 1.4, "two": 1.75}
MOST_HEIGHT: dict[Width, float | None] = {"one": 4.5, "two": None}
# What stands left of half a column: two lines beside the numbers.
HALF_LEFT = 0.56

SMALL = 6.5
BODY = 7.0
LABEL = 7.5
TITLE = 8.0

FONTS = ["STIXGeneral", "DejaVu Serif"]
# STIX ships with matplotlib, so the same log gives the same bytes on every machine.
_RC: Any = {
    "font.family": FONTS,
    "mathtext.fontset": "stix",
    "font.size": BODY,
    "axes.titlesize": TITLE,
    "axes.labelsize": LABEL,
    "xtick.labelsize": BODY,
    "ytick.labelsize": BODY,
    "legend.fontsize": BODY,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.labelpad": 2.0,
    "axes.unicode_minus": True,
    "axes.formatter.use_mathtext": True,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.pad": 2.5,
    "ytick.major.pad": 2.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 4.0,
    "errorbar.capsize": 2.0,
    "grid.linestyle": ":",
    "grid.linewidth": 0.5,
    "grid.color": "#b8b8b8",
    "hatch.linewidth": 0.5,
    "figure.dpi": 100.0,
    "savefig.dpi": 300.0,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "creditscope",
    "path.simplify": True,
    "text.usetex": False,
}

BLUE, ORANGE, RED = "#0072B2", "#E69F00", "#8B1A1A"
INK, GREY, PALE = "#222222", "#6a6a6a", "#f4f4f1"
GOOD, BAD, NEUTRAL = "#e3f1e3", "#f7e2e0", "#efefef"


@contextmanager
def styled() -> Iterator[None]:
    """Within it matplotlib draws in our style, whatever the reader's own settings, which are restored afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


@dataclass(frozen=True)
class LineStyle:
    """Colour, marker and line style of one series."""

    color: str
    marker: str
    line: Any


_FIRST = {"bp": LineStyle(BLUE, "o", "-"), "fa": LineStyle(ORANGE, "s", "-"), "dfa": LineStyle(RED, "D", "-")}
_MORE = (
    LineStyle("#009E73", "^", (0, (5, 1.5))),
    LineStyle("#CC79A7", "v", (0, (3, 1, 1, 1))),
    LineStyle("#56B4E9", "P", (0, (5, 1, 1, 1, 1, 1))),
    LineStyle("#7A6A00", "p", (0, (2, 1))),
    LineStyle("#5B3A8E", "h", (0, (7, 2))),
    LineStyle("#B34700", "*", (0, (1, 1))),
)
_BASELINES = (
    LineStyle("#4d4d4d", "X", (0, (1, 1.2))),
    LineStyle("#8c8c8c", "d", (0, (3, 1.5))),
    LineStyle("#b0b0b0", ">", (0, (5, 1, 1, 1))),
    LineStyle("#6e6e6e", "<", (0, (6, 1))),
    LineStyle("#262626", "1", (0, (2, 2))),
    LineStyle("#9d9d9d", "H", (0, (4, 1, 1, 1, 1, 1))),
)
# From pale to dark, so that a larger λ prints darker; each with its own marker and dash.
_LADDER = ("#E0A100", "#E4572E", "#B8336A", "#6A3DA8", "#1F4E9E", "#111111")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES: tuple[Any, ...] = ((0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (2, 1)), "-", (0, (7, 2)), (0, (1, 1)))


def family(rule: str) -> str:
    """The family whose colour a rule wears: ``bp``, ``fa``, ``dfa`` or ``other``.

    Args:
        rule: A credit rule.
    """
    return "fa" if rule == "fa" or rule.startswith("fa-") else rule if rule in _FIRST else "other"


def line_styles(series: Sequence[Series]) -> dict[str, LineStyle]:
    """One style a series: the first of each family wears the family's, the rest differ in marker and dash too.

    Args:
        series: In drawing order.
    """
    chosen: dict[str, LineStyle] = {}
    first, more, baselines = dict(_FIRST), 0, 0
    for item in series:
        if item.role == "baseline":
            chosen[item.label] = _BASELINES[baselines % len(_BASELINES)]
            baselines += 1
        elif item.role == "claim" and family(item.rule) in first:
            chosen[item.label] = first.pop(family(item.rule))
        else:
            chosen[item.label] = _MORE[more % len(_MORE)]
            more += 1
    return chosen


def ladder(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Looks for an ordered set such as rising λ, pale to dark.

    Args:
        labels: In rising order.
    """
    steps = len(_LADDER)
    spread = [round(i * (steps - 1) / max(1, len(labels) - 1)) for i in range(len(labels))]
    if len(labels) > steps:
        spread = [i % steps for i in range(len(labels))]
    return {
        label: LineStyle(_LADDER[spread[i]], _MARKERS[i % len(_MARKERS)], _DASHES[i % len(_DASHES)])
        for i, label in enumerate(labels)
    }
