"""Artefact 2, ``penalty-rescue``: does keeping the residual stream small rescue learning? The arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from creditscope.figures.choose import (
    CANONICAL_PENALTY,
    LIGHT_PENALTY,
    choose_flavour,
    flavour_of,
    is_frozen,
    nearest,
    penalty,
    trains_all,
)
from creditscope.figures.curves import Curves, common_end, early_ends, error_bars, floor_line, left_out, trajectory
from creditscope.figures.deep import deep_cosine, deep_null, deep_rho, last_probed, last_usable
from creditscope.figures.means import (
    Mean,
    assumed_units,
    common_epochs,
    drawn_cells,
    mean_at,
    value_of,
)
from creditscope.figures.table import Panel, Point, Series, Table, drawable
from creditscope.figures.text import lam, points_of_percent
from creditscope.protocol.cells import Cell
from creditscope.quantities.expensive import RHO_CONTROL, RHO_RANDOM
from creditscope.quantities.per_epoch import ACCURACY, HIDDEN, REFERENCE
from creditscope.records import RunLog

RIGHT = "a, right axis"
COSINE, RHO = "deep cosine", "deep ρ"
CONTROL = "BP gradient"


@dataclass(frozen=True)
class Chosen:
    """The cells this figure compares; None where the logs hold no such run."""

    flavour: str
    penalty: float
    vanilla: Cell | None
    light: Cell | None
    penalised: Cell | None
    bp: Cell | None
    bp_penalised: Cell | None
    frozen: Cell | None

    def roles(self) -> tuple[tuple[str, Cell | None], ...]:
        """Each wanted method with the cell found for it."""
        return (
            (self.flavour, self.vanilla),
            (f"{self.flavour}+pen{LIGHT_PENALTY:g}", self.light),
            (f"{self.flavour}+pen{self.penalty:g}", self.penalised),
            ("bp", self.bp),
            (f"bp+pen{self.penalty:g}", self.bp_penalised),
            (f"{self.flavour}@frozen", self.frozen),
        )


def choose(cells: Sequence[Cell]) -> Chosen:
    """Pick the penalised cell first, then for each role the cell most like it.

    λ = 1e-2 is the penalised run; without it, the λ nearest to it on a logarithmic scale.

    Args:
        cells: All cells.
    """
    flavour = choose_flavour(cells)
    mine = [cell for cell in cells if flavour is not None and flavour_of(cell) == flavour]
    trained = [cell for cell in mine if trains_all(cell)]
    backprop = [cell for cell in cells if cell.spec.rule == "bp" and trains_all(cell)]
    heavy = {penalty(cell) for cell in trained} - {0.0, LIGHT_PENALTY} or {CANONICAL_PENALTY}
    chosen = min(heavy, key=lambda value: abs(math.log(value / CANONICAL_PENALTY)))
    penalised = nearest(trained, None, lambda cell: penalty(cell) == chosen)
    anchor = penalised or nearest(trained, None, lambda cell: True)
    return Chosen(
        flavour=flavour.name if flavour is not None else "dfa-rms",
        penalty=chosen,
        vanilla=nearest(trained, anchor, lambda cell: penalty(cell) == 0),
        light=nearest(trained, anchor, lambda cell: penalty(cell) == LIGHT_PENALTY),
        penalised=penalised,
        bp=nearest(backprop, anchor, lambda cell: penalty(cell) == 0),
        bp_penalised=nearest(backprop, anchor, lambda cell: penalty(cell) == chosen),
        frozen=nearest(mine, anchor, is_frozen),
    )


def penalty_rescue_table(logs: Sequence[RunLog]) -> Table:
    """Everything the penalty-rescue figure shows.

    Args:
        logs: Runs of one local rule with and without penalty, of BP with and without, and of the frozen baseline.
    """
    cells, warnings = drawn_cells(logs)
    chosen = choose(cells)
    notes: list[str] = []
    points = [*_streams(chosen, notes), *_directions(chosen, notes), *_accuracies(chosen, notes)]
    notes.append(assumed_units([cell for cell in (chosen.vanilla, chosen.penalised) if cell is not None]))
    notes.append(error_bars(points, "Error bars and bands"))
    missing = [
        f"penalty-rescue: no {method} run in these logs; drawn without it"
        for method, cell in chosen.roles()
        if cell is None
    ]
    absent = [method for method, cell in chosen.roles() if cell is None]
    notes.append(f"Not among these logs: {', '.join(absent)}." if absent else "")
    if chosen.penalty != CANONICAL_PENALTY:
        missing.append(f"penalty-rescue: no run at {lam(CANONICAL_PENALTY)}; {lam(chosen.penalty)} is shown instead")
    return Table(
        figure="penalty-rescue",
        points=tuple(points),
        series=tuple(
            Series(cell.label, cell.spec.rule, "penalised" if cell is chosen.penalised else "claim")
            for cell in (chosen.vanilla, chosen.penalised)
            if cell is not None
        ),
        panels=_panels(chosen, points),
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        warnings=(*warnings, *missing),
    )


def _streams(chosen: Chosen, notes: list[str]) -> list[Point]:
    points: list[Point] = []
    compared = [cell for cell in (chosen.vanilla, chosen.penalised) if cell is not None]
    drawn: list[Curves] = []
    until, note = common_end(compared)
    notes.append(f"(a): {note[0].lower()}{note[1:]}" if note else "")
    for cell in compared:
        left = trajectory("a", "‖h_L‖", cell, value_of(HIDDEN), until)
        right = trajectory(RIGHT, "‖g_L‖", cell, value_of(REFERENCE), until)
        if not drawable(right.points, log=True):
            right = trajectory(RIGHT, "‖g_2‖ in place of ‖g_L‖", cell, value_of(REFERENCE, 2), until)
            if drawable(right.points, log=True):
                notes.append(f"{cell.label}: ‖g_2‖ stands in for ‖g_L‖, which was not logged.")
        points += [*left.points, *right.points]
        drawn += [left, right]
        notes += [*left.notes, *right.notes, left_out(left.points, "‖h_L‖"), left_out(right.points, "‖g_L‖")]
    notes.append(early_ends(drawn))
    return [*points, floor_line(RIGHT)] if points else []


def _directions(chosen: Chosen, notes: list[str]) -> list[Point]:
    bars: list[Point] = []
    if chosen.vanilla is not None:
        runs = chosen.vanilla.split()[0].runs
        epoch = last_usable(runs)
        if epoch is None:
            notes.append(f"(b): no probed epoch of {chosen.vanilla.label} at which ‖g_L‖ is at or above the floor.")
        else:
            bars += _bar_pair(lam(0.0), epoch, deep_cosine(runs, epoch), deep_rho(runs, epoch))
    for cell in (chosen.light, chosen.penalised):
        runs = cell.split()[0].runs if cell is not None else ()
        epoch = last_probed(runs)
        if cell is not None and epoch is not None:
            bars += _bar_pair(lam(penalty(cell)), epoch, deep_cosine(runs, epoch), deep_rho(runs, epoch))
    bars += _controls(chosen, notes)
    return bars if any(bar.y is not None for bar in bars) else []


def _controls(chosen: Chosen, notes: list[str]) -> list[Point]:
    bars: list[Point] = []
    runs = chosen.penalised.split()[0].runs if chosen.penalised is not None else ()
    epoch = last_probed(runs)
    nothing = Mean(None, None, None, 0, ())
    control = nothing
    if epoch is not None:
        null, redraws = deep_null(runs, epoch)
        pair = _bar_pair("fresh-B null", epoch, null, deep_rho(runs, epoch, RHO_RANDOM))
        spread = f"± s.d. over {redraws} redraws" if null.low is not None else ""
        bars += [replace(pair[0], spread=spread), replace(pair[1], note="ρ of a random vector")]
        control = deep_rho(runs, epoch, RHO_CONTROL)
        if null.y is not None:
            notes.append(
                f"Null of the {lam(chosen.penalty)} runs: cosine ± s.d. over {redraws} redraws, ρ of a random vector."
            )
    self_cosine = nothing
    if chosen.bp is not None:
        backprop = chosen.bp.split()[0].runs
        last = last_probed(backprop)
        if last is not None:
            self_cosine = deep_cosine(backprop, last, exact_too=True)
            control = control if control.y is not None else deep_rho(backprop, last)
    pair = _bar_pair(CONTROL, epoch or 0, self_cosine, control)
    bars += [replace(pair[0], note="exact by construction"), pair[1]]
    return bars


def _bar_pair(name: str, epoch: int, cosine: Mean, rho: Mean) -> list[Point]:
    return [
        mean.point("b", quantity, f"{quantity} at epoch {epoch}", name, "bar")
        for quantity, mean in ((COSINE, cosine), (RHO, rho))
    ]


def _accuracies(chosen: Chosen, notes: list[str]) -> list[Point]:
    wanted = (
        ("bp", "no penalty", chosen.bp),
        ("bp", lam(chosen.penalty), chosen.bp_penalised),
        (chosen.flavour, "no penalty", chosen.vanilla),
        (chosen.flavour, lam(chosen.penalty), chosen.penalised),
    )
    bars, ends = [], {}
    for group, name, cell in wanted:
        final = final_accuracy(cell)
        if cell is None or final is None:
            continue
        epoch, mean = final
        ends[cell.label] = epoch
        bars.append(mean.point("c", group, f"test accuracy at epoch {epoch}", name, "bar"))
    if len(set(ends.values())) > 1:
        notes.append(f"(c): last epochs differ: {', '.join(f'{label} {epoch}' for label, epoch in ends.items())}.")
    if chosen.bp_penalised is not None and chosen.bp_penalised.label in ends:
        under = chosen.bp_penalised.label
        notes.append(f"(c): cost = bp − {under}; remaining gap = {under} − {chosen.flavour}+pen{chosen.penalty:g}.")
    frozen = final_accuracy(chosen.frozen)
    if bars and frozen is not None and chosen.frozen is not None:
        bars.append(frozen[1].point("c", f"{chosen.flavour}@frozen", "test accuracy", None, "line"))
    return bars


def final_accuracy(cell: Cell | None) -> tuple[int, Mean] | None:
    """Last common epoch of a cell's runs and their mean accuracy there; None when it was not logged.

    Args:
        cell: The cell, or None.
    """
    runs = cell.split()[0].runs if cell is not None else ()
    shared = common_epochs(runs)
    if not shared:
        return None
    mean = mean_at(runs, shared[-1], value_of(ACCURACY))
    return (shared[-1], mean) if mean.y is not None else None


def _panels(chosen: Chosen, points: Sequence[Point]) -> tuple[Panel, ...]:
    streams = drawable([p for p in points if p.panel == "a"], log=True)
    return (
        Panel(
            key="a",
            title="(a) Stream and reference",
            x_label="epoch",
            y_label="median ‖h_L‖",
            log=True,
            empty="" if streams else f"no {chosen.flavour} run here logs ‖h_L‖",
        ),
        Panel(
            key="b",
            title="(b) Direction of the deep credit",
            x_label="",
            y_label="mean over blocks 1 to L−1",
            empty="" if any(p.panel == "b" for p in points) else "no run here logs cosines or ρ at its deep blocks",
        ),
        Panel(
            key="c",
            title=f"(c) {_costs(points, chosen)}",
            x_label="",
            y_label="test accuracy",
            empty="" if any(p.panel == "c" for p in points) else "no bp or penalised run here logs its accuracy",
        ),
    )


def _costs(points: Sequence[Point], chosen: Chosen) -> str:
    """The computed cost of the penalty to BP and the gap that remains under it."""
    bars = {(p.series, str(p.x) == "no penalty"): p.y for p in points if p.panel == "c" and p.kind == "bar"}
    bp, bp_pen, local_pen = bars.get(("bp", True)), bars.get(("bp", False)), bars.get((chosen.flavour, False))
    if bp_pen is None:
        return f"Cost and gap unknown: no bp+pen{chosen.penalty:g} accuracy"
    cost = points_of_percent(bp - bp_pen) if bp is not None else "unknown"
    gap = points_of_percent(bp_pen - local_pen) if local_pen is not None else "unknown"
    return f"Cost to BP {cost}, gap {gap}"
