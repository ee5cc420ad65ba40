"""Artefact 3, ``penalty-sweep``: the residual stream, the reference and the accuracy over training, one line per λ."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.figures.choose import choose_flavour, flavour_of, is_frozen, nearest, penalty, trains_all
from creditscope.figures.curves import Curves, common_end, early_ends, error_bars, floor_line, left_out, trajectory
from creditscope.figures.draw import (
    decades,
    draw_lines,
    dress,
    end_room,
    epochs,
    handle,
    label_ends,
    linear_ticks,
    reference_lines,
    trace,
)
from creditscope.figures.means import (
    assumed_units,
    common_epochs,
    drawn_cells,
    mean_at,
    value_of,
)
from creditscope.figures.page import LEFT, Body, Page, Slot, add_body, add_legend
from creditscope.figures.style import HALF_LEFT, HEIGHTS, INCHES, MOST_HEIGHT, LineStyle, Width, ladder
from creditscope.figures.table import Panel, Point, Series, Table, drawable
from creditscope.figures.text import lam, points_of_percent, sci
from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.depth import Depth
from creditscope.quantities.per_epoch import ACCURACY, HIDDEN, REFERENCE
from creditscope.records import RunLog

# The margin of the depth check, as a fraction.
MARGIN = Depth.threshold / 100
STATE = 2


def penalty_sweep_table(logs: Sequence[RunLog]) -> Table:
    """Everything the penalty-sweep figure shows.

    Args:
        logs: Runs of one local rule under several λ, a BP run and the frozen baseline.
    """
    cells, warnings = drawn_cells(logs)
    flavour = choose_flavour(cells)
    name = flavour.name if flavour is not None else "dfa-rms"
    mine = [cell for cell in cells if flavour is not None and flavour_of(cell) == flavour]
    swept = _one_per_penalty([cell for cell in mine if trains_all(cell)])
    anchor = max(swept, key=lambda cell: len(cell.runs), default=None)
    bp = nearest(cells, anchor, lambda cell: cell.spec.rule == "bp" and trains_all(cell) and not penalty(cell))
    frozen = nearest(mine, anchor, is_frozen)
    notes: list[str] = []
    points: list[Point] = []
    drawn: list[Curves] = []
    until, note = common_end(swept)
    notes.append(note)
    for cell in swept:
        for panel, quantity, value in (
            ("a", "‖h_L‖", value_of(HIDDEN)),
            ("b", f"‖g_{STATE}‖", value_of(REFERENCE, STATE)),
            ("c", "test accuracy", value_of(ACCURACY)),
        ):
            curves = trajectory(panel, quantity, cell, value, until)
            points += curves.points
            notes += curves.notes
            drawn.append(curves)
    notes.append(early_ends(drawn))
    for panel, what in (("a", "‖h_L‖"), ("b", f"‖g_{STATE}‖")):
        notes.append(left_out([p for p in points if p.panel == panel], what))
    notes.append(assumed_units(swept))
    notes.append(error_bars(points, "Bands"))
    untrained = [p.y for p in points if p.panel == "c" and p.x == 0.0 and p.y is not None]
    if untrained and any(p.panel == "c" and p.x != 0.0 for p in points):
        lowest, highest = f"{min(untrained):.3f}", f"{max(untrained):.3f}"
        span = lowest if lowest == highest else f"{lowest} to {highest}"
        notes.append(f"(c) is cut below: before training accuracy is {span}.")
    points += _lines(bp, frozen, notes)
    return Table(
        figure="penalty-sweep",
        points=tuple(points),
        series=tuple(Series(cell.label, cell.spec.rule, "penalised") for cell in swept),
        panels=_panels(points, name),
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        warnings=(*warnings, *_missing(name, swept, bp, frozen, len(mine))),
    )


def _one_per_penalty(cells: Sequence[Cell]) -> list[Cell]:
    """One cell a λ, in rising order, labelled by λ; where a λ has several, the one most like the others."""
    penalties = sorted({penalty(cell) for cell in cells})
    typical = max(cells, key=lambda cell: (penalty(cell) > 0, len(cell.runs)), default=None)
    chosen: list[Cell] = []
    for value in penalties:
        cell = nearest(cells, typical, _has_penalty(value))
        if cell is not None:
            chosen.append(replace(cell, label=lam(value)))
    return chosen


def _has_penalty(value: float) -> Callable[[Cell], bool]:
    return lambda cell: penalty(cell) == value


def _lines(bp: Cell | None, frozen: Cell | None, notes: list[str]) -> list[Point]:
    lines = [floor_line("b")]
    if bp is not None:
        runs = bp.split()[0].runs
        epoch = max(common_epochs(runs), default=None)
        level = mean_at(runs, epoch, value_of(HIDDEN)) if epoch is not None else None
        if level is not None and level.y is not None:
            lines.append(level.point("a", "bp", f"‖h_L‖ at epoch {epoch}", None, "line"))
            notes.append(f"Dashed in (a): ‖h_L‖ of bp at its last epoch, {epoch}.")
    if frozen is not None:
        runs = frozen.split()[0].runs
        epoch = max(common_epochs(runs), default=None)
        base = mean_at(runs, epoch, value_of(ACCURACY)) if epoch is not None else None
        if base is not None and base.y is not None:
            what = f"test accuracy at epoch {epoch}"
            method = frozen.spec.method
            notes.append(
                f"Dashed in (c): {method} at its last epoch, {epoch}, and {points_of_percent(MARGIN)} above it."
            )
            above = f"{method} + {points_of_percent(MARGIN)}"
            lines += [
                base.point("c", method, what, None, "line"),
                Point("c", above, what, None, base.y + MARGIN, n=base.n, logs=base.logs, kind="line"),
            ]
    return lines


def _missing(name: str, swept: Sequence[Cell], bp: Cell | None, frozen: Cell | None, mine: int) -> list[str]:
    said = []
    if not any(penalty(cell) for cell in swept):
        said.append(f"penalty-sweep: no penalised {name} run in these logs")
    if not any(penalty(cell) == 0 for cell in swept):
        said.append(f"penalty-sweep: no {name} run without penalty in these logs; drawn without it")
    if bp is None:
        said.append("penalty-sweep: no bp run in these logs; drawn without its level")
    if frozen is None:
        said.append(f"penalty-sweep: no {name}@frozen run in these logs; drawn without the baseline")
    return said


def _panels(points: Sequence[Point], name: str) -> tuple[Panel, ...]:
    def shown(panel: str, log: bool) -> bool:
        return bool(drawable([p for p in points if p.panel == panel and p.kind == "point"], log))

    return (
        Panel(
            "a",
            f"(a) Stream of {name}",
            "epoch",
            "median ‖h_L‖",
            log=True,
            empty="" if shown("a", True) else f"no {name} run here logs ‖h_L‖",
        ),
        Panel(
            "b",
            f"(b) Reference at state {STATE}",
            "epoch",
            f"median ‖g_{STATE}‖ per sample",
            log=True,
            empty="" if shown("b", True) else f"no {name} run here logs ‖g_{STATE}‖",
        ),
        Panel(
            "c",
            "(c) Accuracy",
            "epoch",
            "test accuracy",
            empty="" if shown("c", False) else f"no {name} run here logs test accuracy",
        ),
    )


def plot_penalty_sweep(table: Table, width: Width = "two", height: float | None = None) -> Figure:
    """Draw the penalty-sweep figure.

    Args:
        table: From ``penalty_sweep_table``.
        width: One or two text columns.
        height: Of the whole figure in inches; None: as the width has it.
    """
    chosen = ladder([item.label for item in table.series])
    page = Page(INCHES[width])
    body = Body(3 if width == "two" else 2, HEIGHTS[width], height, MOST_HEIGHT[width])
    last = [panel.key for panel in table.panels if not panel.empty][-1]
    named = {point.series for point in table.of(last, kind="point") if point.y is not None and not point.branch}
    room = end_room([item.label for item in table.series], 0.9) if named == {s.label for s in table.series} else None
    if room is None:
        add_legend(page, [(item.label, handle(chosen[item.label])) for item in table.series])

    def slot(panel: Panel) -> Slot:
        ends = room is not None and panel.key == last
        return Slot(
            panel.title,
            lambda axes: _paint(axes, table, panel, chosen, ends),
            right=room if ends and room is not None else 0.05,
            weight=1.15 if ends else 1.0,
            left=LEFT if width == "two" else HALF_LEFT,
        )

    add_body(page, table.panels, slot, table.notes, body)
    return page.figure()


def _paint(axes: Axes, table: Table, panel: Panel, chosen: dict[str, LineStyle], ends: bool) -> None:
    points = drawable(table.of(panel.key, kind="point"), panel.log)
    lines = drawable(table.of(panel.key, kind="line"), panel.log)
    dress(axes, panel)
    epochs(axes, points)
    if panel.log:
        decades(axes, [*points, *lines])
    else:
        # Before training every run guesses: that one point would leave most of the axis empty.
        trained = [p for p in points if p.x != 0.0] or points
        shown = [v for p in (*trained, *lines) for v in (p.y, p.low, p.high) if v is not None]
        air = 0.08 * (max(shown) - min(shown)) or 0.02
        # More air above: the text of the highest line is there.
        axes.set_ylim(max(0.0, min(shown) - air), max(shown) + 2 * air)
        axes.yaxis.set_major_locator(linear_ticks())
    draw_lines(axes, points, chosen)
    # The title and the small print name the baseline's rule: a short text covers less of the lines.
    names = [line.series.rsplit("@", 1)[-1] for line in lines]
    values = [sci(line.y or 0.0) if panel.log else f"{line.y:.3f}" for line in lines]
    texts = [f"{name} {value}" for name, value in zip(names, values, strict=True)]
    reference_lines(axes, list(zip(lines, texts, strict=True)), trace(axes, points))
    if ends:
        label_ends(axes, points, chosen)
