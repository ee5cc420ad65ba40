"""Two sets of runs side by side: what differs in the recipe, and paired differences of everything that was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.errors import BadInput
from creditscope.protocol.effects import MEASURES, MORE, Effect, Trial, corrected, effect
from creditscope.records.labels import labels_of
from creditscope.records.log import RunLog
from creditscope.records.spec import RunSpec
from creditscope.records.table import Table

# What a seed or the measuring changes is no difference of recipes.
_NOT_RECIPE = {"seed", "probe", "origin", "injection", "feedback"}


@dataclass(frozen=True)
class Compared:
    """One cell of A beside one of B.

    Args:
        labels: What the two are called.
        recipe: Field by field, what differs: name, A, B.
        effects: B less A.
        seeds: How many seeds both have.
    """

    labels: tuple[str, str]
    recipe: tuple[tuple[str, str, str], ...]
    effects: tuple[Effect, ...]
    seeds: int

    def table(self) -> Table:
        """Every difference."""
        rows = tuple(
            (
                each.measure.label,
                each.measure.shown(each.base, difference=False),
                each.measure.shown(each.changed, difference=False),
                each.interval,
                "–" if each.q is None else f"{each.q:.2g}",
                "–" if each.parted is None else str(each.parted),
            )
            for each in self.effects
        )
        columns = ("quantity", "A", "B", "B − A, or B / A for ×, 95 % interval", "q", "apart from epoch")
        title = f"A: {self.labels[0]}   B: {self.labels[1]}   ({self.seeds} common seeds)"
        return Table(columns, rows, ("left", "right", "right", "left", "right", "right"), title)

    def recipe_table(self) -> Table:
        """What differs in the recipe."""
        return Table(("setting", "A", "B"), self.recipe, title="What differs in the recipe")


@dataclass(frozen=True)
class Comparison:
    """Two sets of runs side by side.

    Args:
        cells: Cell by cell.
        alone: Cells that only one side has.
    """

    cells: tuple[Compared, ...]
    alone: tuple[str, ...]

    def to_text(self, width: int | None = None) -> str:
        """Every cell: the recipe, then the differences.

        Args:
            width: Of the terminal; None: any.
        """
        parts = []
        for cell in self.cells:
            same = "the recipes do not differ"
            parts.append(cell.recipe_table().to_text(width) if cell.recipe else same)
            parts.append(cell.table().to_text(width))
        return "\n\n".join([*parts, *self.alone])

    def to_markdown(self) -> str:
        """The same in Markdown."""
        parts = [table.to_markdown() for cell in self.cells for table in (cell.recipe_table(), cell.table())]
        return "\n\n".join([*parts, *self.alone])

    def to_latex(self) -> str:
        """The differences, a table a cell."""
        return "\n\n".join(cell.table().to_latex() for cell in self.cells)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cells": [
                {
                    "a": cell.labels[0],
                    "b": cell.labels[1],
                    "seeds": cell.seeds,
                    "recipe": [dict(zip(("setting", "a", "b"), row, strict=True)) for row in cell.recipe],
                    "differences": {each.measure.name: each.to_dict() for each in cell.effects},
                }
                for cell in self.cells
            ],
            "alone": list(self.alone),
        }


def compare(a: Sequence[RunLog], b: Sequence[RunLog]) -> Comparison:
    """Compare runs of one method on each side, or method by method where both sides hold several.

    Args:
        a: One side.
        b: The other.
    """
    ours, theirs = _trials(a), _trials(b)
    if len(ours) == len(theirs) == 1:
        pairs = [(next(iter(ours)), next(iter(theirs)))]
    else:
        for side, trials in (("A", ours), ("B", theirs)):
            methods = [spec.method for spec in trials]
            if several := sorted({method for method in methods if methods.count(method) > 1}):
                raise BadInput(f"{side} holds {several[0]} in several recipes; keep each in a folder of its own")
        pairs = [(spec, other) for spec in ours for other in theirs if spec.method == other.method]
    if not pairs:
        raise BadInput("no method is on both sides; name one method a side")
    labels = {
        side: dict(zip(trials, labels_of(list(trials)), strict=True)) for side, trials in (("A", ours), ("B", theirs))
    }
    alone = [
        f"only in {side}: {labels[side][spec]}"
        for side, trials, at in (("A", ours, 0), ("B", theirs, 1))
        for spec in trials
        if spec not in {pair[at] for pair in pairs}
    ]
    cells = [_compared(ours[s], theirs[o], (labels["A"][s], labels["B"][o]), _differing(s, o)) for s, o in pairs]
    return Comparison(tuple(cells), tuple(alone))


def _compared(
    ours: Trial, theirs: Trial, labels: tuple[str, str], recipe: tuple[tuple[str, str, str], ...]
) -> Compared:
    found = [each for m in (*MEASURES, *MORE) if (each := effect(m, theirs, ours)) is not None]
    seeds = {run.spec.seed for run in ours.runs} & {run.spec.seed for run in theirs.runs}
    return Compared(labels, recipe, tuple(corrected(found)), len(seeds))


def _trials(runs: Sequence[RunLog]) -> dict[RunSpec, Trial]:
    """Every cell with its frozen twin; frozen cells alone where nothing else is there."""
    cells: dict[str, list[RunLog]] = {}
    for run in runs:
        cells.setdefault(run.spec.cell_key, []).append(run)
    groups = [tuple(group) for group in cells.values()]
    claims = [group for group in groups if not group[0].spec.is_baseline] or groups
    frozen = {
        group[0].spec.match_key: group
        for group in groups
        if group[0].spec.is_baseline and group[0].spec.train_embedding is not False
    }
    return {
        group[0].spec.model_copy(update={"seed": None}): Trial(group, frozen.get(group[0].spec.match_key, ()))
        for group in claims
    }


def _differing(a: RunSpec, b: RunSpec) -> tuple[tuple[str, str, str], ...]:
    ours, theirs = (_flat(spec.model_dump(mode="json", exclude=_NOT_RECIPE)) for spec in (a, b))
    names = [name for name in dict.fromkeys((*ours, *theirs)) if ours.get(name) != theirs.get(name)]
    return tuple((name, _said(ours.get(name)), _said(theirs.get(name))) for name in names)


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def _said(value: Any) -> str:
    return "–" if value is None else str(value)
