"""Artefact 1, ``hero``: accuracy and aggregate cosine against what lies beneath them, block by block."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from creditscope.figures.choose import rank, role_of
from creditscope.figures.curves import alignment, error_bars, floor_line, left_out
from creditscope.figures.hero_text import beneath_text, cosine_text, margins, pair_text
from creditscope.figures.means import (
    FLOOR,
    assumed_units,
    at,
    common_epochs,
    depth_of,
    drawn_cells,
    mean_over,
)
from creditscope.figures.style import family
from creditscope.figures.table import EXACT, Panel, Point, Series, Strip, Table, drawable
from creditscope.protocol.cells import Cell
from creditscope.quantities.per_epoch import (
    ACCURACY,
    COSINE,
    GAMMA_ACTING,
    GAMMA_CLAMPED,
    GAMMA_PUBLISHED,
    PUBLISHED,
    REFERENCE,
)
from creditscope.records import EpochRow, RunLog
from creditscope.records.method import Method
from creditscope.records.rule_card import RuleCard

Index = Literal["published", "acts"]
MOST_SERIES = 8


def hero_table(logs: Sequence[RunLog], index: Index = "published") -> Table:
    """Everything the hero figure shows.

    Args:
        logs: Any runs; those that differ only in their seed become one marker.
        index: ``published``, or ``acts``: cosines where the credit acts.
    """
    cells, warnings = drawn_cells(logs)
    everything = sorted(cells, key=rank)
    cells = _most_telling(everything)
    shown = {cell.label for cell in cells}
    rest = [cell.label for cell in everything if cell.label not in shown]
    said = [*warnings, *_missing(everything), *_too_many(rest)]
    notes: list[str] = []
    points: list[Point] = []
    for cell in cells:
        averaged, early = cell.split()
        notes += [f"{cell.label}, seed {log.spec.seed}: ended early, left out of the mean." for log in early]
        if averaged.ended_early:
            last = max(common_epochs(averaged.runs), default=0)
            notes.append(f"{cell.label}: ended early; shown at its last common epoch, {last}.")
        else:
            notes.append(alignment(averaged))
        points += _pair(averaged, index, notes) + _cosines(averaged, index, notes) + _references(averaged)
    notes.append(assumed_units(cells))
    drawn = {p.series for p in points if p.y is not None}
    notes += [left_out([p for p in points if p.panel == "C"], "panel C"), error_bars(points, "Error bars")]
    if any(point.note == EXACT for point in points):
        notes.append("Hollow markers: exact by construction.")
    notes.append(f"Not drawn: {', '.join(rest)}." if rest else "")
    chance, chance_line = _chance(cells)
    said += _partial(cells, points)
    points += [*chance_line, floor_line("C")]
    return Table(
        figure="hero",
        points=tuple(points),
        series=tuple(Series(cell.label, cell.spec.rule, role_of(cell)) for cell in cells if cell.label in drawn),
        panels=_panels(points, everything, chance, index),
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        warnings=tuple(said),
        strip=_strip(cells),
    )


def _missing(cells: Sequence[Cell]) -> list[str]:
    there = {family(cell.spec.rule) for cell in cells if not cell.spec.is_baseline}
    return [f"hero: no {name} run in these logs; drawn without it" for name in ("bp", "fa", "dfa") if name not in there]


def _partial(cells: Sequence[Cell], points: Sequence[Point]) -> list[str]:
    shown = {(point.series, point.panel) for point in points if point.y is not None}
    absent = {cell.label: [key for key in "ABC" if (cell.label, key) not in shown] for cell in cells}
    return [
        f"hero: the logs of {label} hold nothing for panel {' or '.join(keys)}"
        for label, keys in absent.items()
        if keys
    ]


def _most_telling(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """As many cells as a reader can tell apart: claims first, then the frozen twins that they clear by the least."""
    if len(cells) <= MOST_SERIES:
        return tuple(cells)
    claims = [cell.label for cell in cells if not cell.spec.is_baseline][:MOST_SERIES]
    others = [cell.label for cell in cells if cell.spec.is_baseline]
    closest: dict[str, float] = {}
    for claim, twin, margin in margins(cells):
        if claim.label in claims:
            closest[twin.label] = min(margin, closest.get(twin.label, math.inf))
    others.sort(key=lambda label: closest.get(label, math.inf))
    kept = {*claims, *others[: MOST_SERIES - len(claims)]}
    return tuple(cell for cell in cells if cell.label in kept)


def _too_many(rest: Sequence[str]) -> list[str]:
    if not rest:
        return []
    return [f"hero: more than {MOST_SERIES} methods; not drawn: {', '.join(rest)}; pass fewer logs to see them"]


def _gamma(index: Index) -> Callable[[RunLog, EpochRow], tuple[float | None, bool]]:
    """Γ of a row, and whether only the clamped value was logged."""

    def value(log: RunLog, row: EpochRow) -> tuple[float | None, bool]:
        if index == "acts":
            return GAMMA_ACTING.at(row, log.units), False
        published = GAMMA_PUBLISHED.at(row, log.units)
        if published is not None:
            return published, False
        clamped = GAMMA_CLAMPED.at(row, log.units)
        return clamped, clamped is not None

    return value


def _last_rows(cell: Cell) -> list[tuple[RunLog, EpochRow]]:
    shared = common_epochs(cell.runs)
    return [(log, at(log, shared[-1])) for log in cell.runs] if shared else []


def _pair(cell: Cell, index: Index, notes: list[str]) -> list[Point]:
    gamma = _gamma(index)
    both = [
        (log, found, accuracy)
        for log, row in _last_rows(cell)
        if (found := gamma(log, row))[0] is not None and (accuracy := ACCURACY.at(row, log.units)) is not None
    ]
    if not both:
        return []
    if any(clamped for _, (_, clamped), _ in both):
        notes.append(f"{cell.label}: Γ is the clamped value, the only one logged.")
    x = mean_over((log.name, value) for log, (value, _), _ in both)
    y = mean_over((log.name, value) for log, _, value in both)
    return [y.point("A", cell.label, "test accuracy against Γ", x.y, x_low=x.low, x_high=x.high)]


def _cosines(cell: Cell, index: Index, notes: list[str]) -> list[Point]:
    cosine = PUBLISHED if index == "published" else COSINE
    rows = [
        (log, values, cosine.status(row))
        for log, row in _last_rows(cell)
        if (values := cosine.read(row, log.units)) is not None
    ]
    points, refused = [], set()
    states = max((len(values) for _, values, _ in rows), default=0)
    for state in range(states if index == "acts" else states - 1):
        held = [(log.name, values[state], said[state]) for log, values, said in rows if state < len(values)]
        usable = [(log, value) for log, value, status in held if status in ("ok", "exact-by-construction")]
        refused |= {status for _, _, status in held if status not in ("ok", "exact-by-construction")}
        mean = mean_over(usable)
        exact = bool(usable) and all(status == "exact-by-construction" for _, _, status in held)
        points.append(mean.point("B", cell.label, cosine.field, float(state), note=EXACT if exact else ""))
    if refused:
        notes.append(f"{cell.label}: cosines left out ({', '.join(sorted(refused))}).")
    return points if any(point.y is not None for point in points) else []


def _references(cell: Cell) -> list[Point]:
    rows = _last_rows(cell)
    depths = [depth for log, _ in rows if (depth := depth_of(log)) is not None]
    points = []
    for state in range(max(depths, default=-1) + 1):
        mean = mean_over((log.name, REFERENCE.at(row, log.units, state)) for log, row in rows)
        points.append(mean.point("C", cell.label, "median ‖∂ℓ/∂h_l‖ per sample", float(state)))
    return points if any(point.y is not None for point in points) else []


def _chance(cells: Sequence[Cell]) -> tuple[float | None, list[Point]]:
    classes = {cell.spec.classes for cell in cells if cell.spec.classes is not None}
    if len(classes) != 1:
        return None, []
    chance = 1.0 / classes.pop()
    names = tuple(run.name for cell in cells if cell.spec.classes is not None for run in cell.runs)
    return chance, [
        Point("A", "chance", "1/classes", None, chance, n=len(names), logs=names, kind="line"),
    ]


def _strip(cells: Sequence[Cell]) -> Strip | None:
    if not cells:
        return None
    depths = {depth for cell in cells if (depth := depth_of(cell.runs[0])) is not None}
    terminal = {cell.spec.terminal_ln for cell in cells}
    return Strip(
        depth=depths.pop() if len(depths) == 1 else None,
        terminal_ln=terminal.pop() if len(terminal) == 1 else None,
        rules=tuple({_rule_of(cell): _card(cell) for cell in cells}.values()),
    )


def _panels(
    points: Sequence[Point], cells: Sequence[Cell], chance: float | None, index: Index
) -> tuple[Panel, Panel, Panel]:
    pair = [p for p in points if p.panel == "A" and p.kind == "point"]
    cosines = [p for p in points if p.panel == "B" and p.kind == "point"]
    norms = drawable([p for p in points if p.panel == "C" and p.kind == "point"], log=True)
    x_label = "block l (published index)" if index == "published" else "state l where the credit acts"
    where = "block by block" if index == "published" else "where the credit acts"
    return (
        Panel(
            key="A",
            title="(A) The standard pair",
            x_label="aggregate cosine Γ" + ("" if index == "published" else " (acting)"),
            y_label="test accuracy",
            caption=pair_text(pair, cells, chance),
            empty="" if pair else "no log holds both Γ and test accuracy",
        ),
        Panel(
            key="B",
            title="(B) Cosine, block by block",
            x_label=x_label,
            y_label="cosine with the reference",
            caption=cosine_text(cosines),
            empty="" if cosines else f"no log holds cosines {where}",
        ),
        Panel(
            key="C",
            title="(C) Size of the reference",
            x_label="state l",
            y_label="median ‖∂ℓ/∂h_l‖ per sample",
            log=True,
            caption=beneath_text(norms, FLOOR),
            empty="" if norms else "no log holds reference norms per layer",
        ),
    )


def _rule_of(cell: Cell) -> str:
    """The rule with its options: what one row of the strip stands for."""
    return str(Method(cell.spec.rule, options=cell.spec.options or {}))


def _card(cell: Cell) -> RuleCard:
    """The rule in its own words, under a name that tells it from the same rule with other options."""
    return cell.runs[0].header.card.model_copy(update={"name": _rule_of(cell)})
