"""Artefact 4, ``snapshot``: how ‖h_L‖ and ‖g_L‖ evolve over training, with and without a terminal LayerNorm."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.figures.choose import rank, trains_all
from creditscope.figures.curves import Curves, early_ends, error_bars, floor_line, left_out, trajectory
from creditscope.figures.draw import (
    decades,
    draw_lines,
    dress,
    end_room,
    epochs,
    handle,
    label_ends,
    reference_lines,
    trace,
)
from creditscope.figures.means import assumed_units, drawn_cells, value_of
from creditscope.figures.page import LEFT, Body, Page, Slot, add_body, add_legend
from creditscope.figures.style import HALF_LEFT, INCHES, MOST_HEIGHT, LineStyle, Width, family, line_styles
from creditscope.figures.table import Panel, Point, Series, Table, drawable
from creditscope.figures.text import listed, sci
from creditscope.protocol.cells import Cell
from creditscope.quantities.per_epoch import HIDDEN, REFERENCE
from creditscope.records import RunLog
from creditscope.records.labels import labels_of

_NAMES = {"resmlp": "ResMLP", "vit-mini": "ViT-Mini", None: "Imported runs"}
# Two panels a row, and a letter for each panel.
MOST_ROWS = len(ascii_lowercase) // 2


@dataclass(frozen=True)
class Row:
    """Two panels: one architecture.

    Args:
        name: In words.
        cells: Its cells; empty when the logs hold no such run.
    """

    name: str
    cells: tuple[Cell, ...]


def snapshot_table(logs: Sequence[RunLog]) -> Table:
    """Everything the snapshot figure shows.

    Args:
        logs: Runs of several rules without penalty; a row of panels for each architecture.
    """
    cells, warnings = drawn_cells(logs)
    plain = [cell for cell in cells if trains_all(cell) and not cell.spec.penalty and cell.spec.targets != "random"]
    other = [cell.label for cell in cells if cell not in plain]
    said = list(warnings)
    if other:
        said.append(f"snapshot: penalised, partly trained and random-target runs are not drawn: {listed(other)}")
    merged = _merge_lengths(plain, said)
    rows = _rows(merged)
    if len(rows) > MOST_ROWS:
        more = ", ".join(row.name for row in rows[MOST_ROWS:][:4])
        said.append(
            f"snapshot: {len(rows) - MOST_ROWS} more architectures are not drawn, such as {more}; name fewer logs"
        )
        rows = rows[:MOST_ROWS]
    points: list[Point] = []
    notes: list[str] = []
    panels: list[Panel] = []
    trajectories: list[Curves] = []
    letters = iter(ascii_lowercase)
    for row in rows:
        said += _missing(row)
        for what, value in (("‖h_L‖", value_of(HIDDEN)), ("‖g_L‖", value_of(REFERENCE))):
            key = next(letters)
            mine: list[Point] = []
            for cell in row.cells:
                curves = trajectory(key, what, cell, value)
                mine += curves.points
                notes += curves.notes
                trajectories.append(curves)
                if not drawable(curves.points, log=True):
                    said.append(f"snapshot: {row.name}: {cell.label} logs no {what}; drawn without it")
            notes.append(left_out(mine, f"panel ({key})"))
            shown = drawable(mine, log=True)
            panels.append(_panel(key, row, what, shown))
            if what == "‖g_L‖" and shown:
                mine.append(floor_line(key))
            points += mine
    notes.append(early_ends(trajectories))
    notes.append(assumed_units(cell for row in rows for cell in row.cells))
    notes.append(error_bars(points, "Bands"))
    drawn = {point.series for point in points}
    series = {cell.label: Series(cell.label, cell.spec.rule) for row in rows for cell in sorted(row.cells, key=rank)}
    return Table(
        figure="snapshot",
        points=tuple(points),
        series=tuple(item for item in series.values() if item.label in drawn),
        panels=tuple(panels),
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        warnings=tuple(said),
    )


def _merge_lengths(cells: Sequence[Cell], said: list[str]) -> list[Cell]:
    """Join cells that differ only in their planned epochs; where they share a seed, keep the longer."""
    joined: dict[str, list[Cell]] = {}
    for cell in cells:
        joined.setdefault(cell.spec.model_copy(update={"epochs": None}).cell_key, []).append(cell)
    merged: list[Cell] = []
    for group in joined.values():
        kept: list[RunLog] = []
        for cell in sorted(group, key=lambda cell: -cell.runs[0].epochs[-1].epoch):
            seeds = {log.spec.seed for log in kept}
            if any(log.spec.seed is None or log.spec.seed in seeds for log in cell.runs) and kept:
                said.append(f"snapshot: {cell.label} repeats seeds of a longer run and is not drawn")
            else:
                kept += cell.runs
        merged.append(replace(group[0], runs=tuple(kept)))
    return merged


def _rows(cells: Sequence[Cell]) -> list[Row]:
    """Models of vectors, such as ResMLP: with and without terminal LN, both always; token models: one row each."""
    rows: list[Row] = []
    tokens = [cell for cell in cells if cell.spec.model == "vit-mini" or cell.spec.view in ("cls", "mean", "all")]
    plain = [cell for cell in cells if cell not in tokens]
    for model in sorted({cell.spec.model for cell in plain}, key=lambda name: (name is None, name or "")):
        mine = [cell for cell in plain if cell.spec.model == model]
        name = _NAMES.get(model, str(model))
        by_norm = {flag: [cell for cell in mine if cell.spec.terminal_ln is flag] for flag in (True, False, None)}
        if by_norm[None]:
            rows.append(_row(f"{name}, terminal LN not stated", by_norm[None]))
        if by_norm[True] or not by_norm[None]:
            rows.append(_row(f"{name} with terminal LN", by_norm[True]))
        rows.append(_row(f"{name} without terminal LN", by_norm[False]))
    views = sorted({(cell.spec.model or "", cell.spec.view or "") for cell in tokens})
    for model, view in views:
        mine = [cell for cell in tokens if (cell.spec.model or "", cell.spec.view or "") == (model, view)]
        where = {"cls": "class token", "mean": "token mean", "all": "all tokens"}.get(view, "view not stated")
        rows.append(_row(f"{_NAMES.get(model or None, model)}, {where}", mine))
    return rows or [Row("ResMLP with terminal LN", ()), Row("ResMLP without terminal LN", ())]


def _row(name: str, cells: Sequence[Cell]) -> Row:
    labels = labels_of([cell.spec.model_copy(update={"epochs": None}) for cell in cells])
    named = [replace(cell, label=label) for cell, label in zip(cells, labels, strict=True)]
    return Row(name, tuple(sorted(named, key=rank)))


def _missing(row: Row) -> list[str]:
    if not row.cells:
        return [f"snapshot: {row.name}: no run in these logs; its panels are closed"]
    there = {family(cell.spec.rule) for cell in row.cells}
    return [
        f"snapshot: {row.name}: no {rule} run in these logs; drawn without it"
        for rule in ("bp", "dfa")
        if rule not in there
    ]


def _panel(key: str, row: Row, what: str, shown: Sequence[Point]) -> Panel:
    counts = {cell.label: len(cell.split()[0].runs) for cell in row.cells}
    if len(set(counts.values())) == 1:
        n = next(iter(counts.values()))
        seeds = f", n = {n} seed{'s' if n > 1 else ''}"
    else:
        seeds = ", seeds: " + ", ".join(f"n = {n} ({label})" for label, n in counts.items()) if counts else ""
    why = f"none of these runs logs {what}" if row.cells else f"these logs hold no run of {row.name}"
    return Panel(
        key=key,
        title=f"({key}) {row.name}{seeds}",
        x_label="epoch",
        y_label=f"median {what}" + (" per sample" if what == "‖g_L‖" else ""),
        log=True,
        empty="" if shown else why,
    )


def plot_snapshot(table: Table, width: Width = "two", height: float | None = None) -> Figure:
    """Draw the snapshot figure.

    Args:
        table: From ``snapshot_table``.
        width: One or two text columns.
        height: Of the whole figure in inches; None: as the width has it.
    """
    chosen = line_styles(table.series)
    page = Page(INCHES[width])
    body = Body(2, 1.55 if width == "two" else 1.0, height, MOST_HEIGHT[width])
    right = _right_panels(table)
    named = {point.series for key in right for point in table.of(key, kind="point") if point.y is not None}
    room = end_room([item.label for item in table.series], 0.7) if named == {s.label for s in table.series} else None
    if room is None:
        add_legend(page, [(item.label, handle(chosen[item.label])) for item in table.series])

    def slot(panel: Panel) -> Slot:
        ends = room is not None and panel.key in right
        return Slot(
            panel.title,
            lambda axes: _paint(axes, table, panel, chosen, ends),
            right=room if ends and room is not None else 0.05,
            weight=1.0 + (0.12 if ends else 0.0),
            left=LEFT if width == "two" else HALF_LEFT,
        )

    add_body(page, table.panels, slot, table.notes, body)
    return page.figure()


def _right_panels(table: Table) -> list[str]:
    """The last panel of each row that is drawn: there the lines are named."""
    shown = [panel.key for panel in table.panels if not panel.empty]
    return [key for number, key in enumerate(shown) if number % 2 or number == len(shown) - 1]


def _paint(axes: Axes, table: Table, panel: Panel, chosen: dict[str, LineStyle], ends: bool) -> None:
    points = drawable(table.of(panel.key, kind="point"), log=True)
    lines = table.of(panel.key, kind="line")
    # Rows are compared: every panel of one quantity has the same axis.
    alike = [other.key for other in table.panels if other.y_label == panel.y_label]
    dress(axes, panel)
    epochs(axes, points)
    decades(axes, [p for key in alike for p in drawable(table.of(key), log=True)])
    draw_lines(axes, points, chosen)
    reference_lines(axes, [(line, f"floor {sci(line.y or 0.0)}") for line in lines], trace(axes, points))
    if ends:
        label_ends(axes, points, chosen)
