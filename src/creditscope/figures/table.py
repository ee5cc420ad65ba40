"""What a figure shows, as data: every point, bar and reference line with the logs it was computed from."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from creditscope.records.rule_card import RuleCard
from creditscope.records.table import csv_cell

Kind = Literal["point", "bar", "line"]
Role = Literal["claim", "penalised", "baseline"]
EXACT = "exact by construction"
STOPPED = "the run ended early"


@dataclass(frozen=True)
class Point:
    """One drawn value.

    Args:
        panel: Key of the panel.
        series: Label of the series, or the name of a reference line.
        quantity: What y is.
        x: Position, or the name under a bar; None for a reference line.
        y: Value; None when no log holds it.
        low: Lower end of the error bar; None without one.
        high: Upper end of it.
        n: Runs behind the value.
        logs: Names of the logs behind it.
        kind: How it is drawn.
        spread: What the error bar is.
        x_low: Lower end of a horizontal error bar.
        x_high: Upper end of it.
        note: What is special about the value.
        branch: Names a single run that is drawn next to the mean of its series; empty for the series itself.
    """

    panel: str
    series: str
    quantity: str
    x: float | str | None
    y: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    logs: tuple[str, ...] = ()
    kind: Kind = "point"
    spread: str = ""
    x_low: float | None = None
    x_high: float | None = None
    note: str = ""
    branch: str = ""


@dataclass(frozen=True)
class Series:
    """One method, cell or λ of a figure.

    Args:
        label: Its name in the legend.
        rule: Its credit rule.
        role: Trained, trained under a penalty, or a baseline.
    """

    label: str
    rule: str
    role: Role = "claim"


@dataclass(frozen=True)
class Panel:
    """The text of one panel; all of it follows from the logs.

    Args:
        key: For example ``A``.
        title: Above the panel.
        x_label: Under it.
        y_label: Beside it.
        log: Whether y is logarithmic.
        caption: In the box beneath; empty for none.
        empty: Why nothing is drawn; empty when something is.
    """

    key: str
    title: str
    x_label: str
    y_label: str
    log: bool = False
    caption: str = ""
    empty: str = ""


@dataclass(frozen=True)
class Strip:
    """The network drawn above the hero figure.

    Args:
        depth: Blocks; None when no log says.
        terminal_ln: Whether a LayerNorm precedes the head; None when the logs differ or do not say.
        rules: Each credit rule present, in its own words.
    """

    depth: int | None
    terminal_ln: bool | None
    rules: tuple[RuleCard, ...]


@dataclass(frozen=True)
class Table:
    """All that a figure shows.

    Args:
        figure: Name of the artefact.
        points: Every value.
        series: Every series, in drawing order.
        panels: Every panel, in reading order.
        notes: Lines under the figure: error bars, alignment, what was left out.
        warnings: Lines for the reader of the command line: which runs are missing.
        strip: The network strip, for the figure that has one.
    """

    figure: str
    points: tuple[Point, ...]
    series: tuple[Series, ...]
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    strip: Strip | None = None

    def of(self, panel: str, series: str | None = None, kind: Kind | None = None) -> tuple[Point, ...]:
        """The points of one panel.

        Args:
            panel: Its key.
            series: Only this series.
            kind: Only this kind.
        """
        return tuple(
            point
            for point in self.points
            if point.panel == panel and series in (None, point.series) and kind in (None, point.kind)
        )

    def panel(self, key: str) -> Panel:
        """One panel.

        Args:
            key: Its key.
        """
        return next(panel for panel in self.panels if panel.key == key)

    @property
    def drawn(self) -> bool:
        """Whether any panel shows a series."""
        return any(not panel.empty for panel in self.panels)

    def to_csv(self) -> str:
        """Every value with its source logs, as CSV text; numbers in full precision."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for point in self.points:
            writer.writerow(_cell(getattr(point, name)) for name in COLUMNS)
        return out.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Everything that is shown, for JSON."""
        return {
            "figure": self.figure,
            "panels": [asdict(panel) for panel in self.panels],
            "points": [asdict(point) for point in self.points],
            "notes": list(self.notes),
            "missing": list(self.warnings),
        }


COLUMNS = (
    *("panel", "series", "branch", "quantity", "kind", "x", "y", "low", "high"),
    *("x_low", "x_high", "n", "spread", "note", "logs"),
)


def drawable(points: Iterable[Point], log: bool) -> list[Point]:
    """The points that an axis can show: those with a value, positive on a logarithmic axis.

    Args:
        points: Candidates.
        log: Whether the axis is logarithmic.
    """
    return [point for point in points if point.y is not None and (point.y > 0 or not log)]


def coordinates(points: Iterable[Point]) -> tuple[list[float], list[float]]:
    """The positions of points that lie at numbers.

    Args:
        points: Drawable points.
    """
    pairs = [(point.x, point.y) for point in points if isinstance(point.x, float) and point.y is not None]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return csv_cell(";".join(value))
    return repr(float(value)) if isinstance(value, float) else csv_cell(str(value))
