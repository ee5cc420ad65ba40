"""How much a verdict depends on its thresholds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from creditscope.protocol.check import Outcome
from creditscope.protocol.evidence import Ruling
from creditscope.protocol.verdict import rule

Range = tuple[float | None, float | None]


# Units in which two values are compared by their difference; in all others by their ratio.
DIFFERENCES = ("pp", "cosine", "fraction")


@dataclass(frozen=True)
class Stays:
    """Where a threshold may lie without changing anything, the others as they are.

    Args:
        check: Whose threshold.
        threshold: As it is.
        outcome: Range over which the check's outcome stays; None for an open end.
        verdict: Range over which the cell's verdict stays.
    """

    check: str
    threshold: float
    outcome: Range
    verdict: Range


@dataclass(frozen=True)
class Gap:
    """The gap between the healthiest failing run and the worst passing run under one check.

    Args:
        check: The check.
        unit: Of the two values.
        failing: The value nearest the threshold among failing runs; None when no run fails.
        failing_log: Whose: the log, or the label of a cell whose seeds are judged together.
        passing: The value nearest the threshold among passing runs; None when no run passes.
        passing_log: Whose.
        width: Their ratio (above 1), or their difference for checks in pp or cosines; None unless both exist.
    """

    check: str
    unit: str
    failing: float | None
    failing_log: str | None
    passing: float | None
    passing_log: str | None
    width: float | None


def zones(outcome: Outcome) -> list[tuple[float, float, Ruling]]:
    """Thresholds from −∞ to ∞, split where the outcome changes: (from, to, ruling)."""
    evidence, side = outcome.evidence, outcome.check.side
    if outcome.ruling in (Ruling.NOT_MEASURED, Ruling.NOT_APPLICABLE):
        return [(-math.inf, math.inf, outcome.ruling)]
    inner = {evidence.low, evidence.high, evidence.passes_to, evidence.fires_to} - {-math.inf, math.inf}
    ends = [-math.inf, *sorted(inner), math.inf]
    return [(a, b, evidence.ruling(_between(a, b), side)) for a, b in pairwise(ends)]


def _between(low: float, high: float) -> float:
    if math.isinf(low):
        return 0.0 if math.isinf(high) else math.nextafter(high, -math.inf)
    return math.nextafter(low, math.inf)


def stays(outcomes: Sequence[Outcome]) -> tuple[Stays, ...]:
    """For each required check, where its threshold may lie.

    Args:
        outcomes: Of one cell.
    """
    required = [outcome for outcome in outcomes if outcome.required]
    now = rule((outcome.ruling, outcome.evidence.grade) for outcome in required)
    found = []
    for outcome in required:
        others = [(other.ruling, other.evidence.grade) for other in required if other is not outcome]
        grade = outcome.evidence.grade
        same = [(a, b, rule([*others, (ruling, grade)]) is now) for a, b, ruling in zones(outcome)]
        mine = [(a, b, ruling is outcome.ruling) for a, b, ruling in zones(outcome)]
        here = outcome.threshold
        found.append(Stays(outcome.name, here, _around(here, mine), _around(here, same)))
    return tuple(found)


def gaps(cells: Sequence[tuple[str, Sequence[Outcome]]]) -> tuple[Gap, ...]:
    """Per check, over all judged runs; over all cells where a check judges its seeds together.

    Args:
        cells: Label and outcomes of each claim cell.
    """
    by_check: dict[str, list[tuple[str, Outcome]]] = {}
    for label, outcomes in cells:
        for outcome in outcomes:
            by_check.setdefault(outcome.name, []).append((label, outcome))
    return tuple(_gap(outcomes) for outcomes in by_check.values())


def _gap(outcomes: list[tuple[str, Outcome]]) -> Gap:
    first = outcomes[0][1]
    if first.check.pooled:
        ruled = [(outcome.evidence.value, outcome.ruling, label) for label, outcome in outcomes]
    else:
        ruled = [(s.evidence.value, s.ruling, s.log) for _, outcome in outcomes for s in outcome.per_seed]
    failing = [(value, name) for value, ruling, name in ruled if value is not None and ruling is Ruling.FIRES]
    passing = [(value, name) for value, ruling, name in ruled if value is not None and ruling is Ruling.PASSES]
    nearest_failing, nearest_passing = (min, max) if first.check.side == "above" else (max, min)
    fail, fail_log = nearest_failing(failing, default=(None, None))
    good, good_log = nearest_passing(passing, default=(None, None))
    return Gap(first.name, first.unit, fail, fail_log, good, good_log, _width(first, fail, good))


def _width(outcome: Outcome, failing: float | None, passing: float | None) -> float | None:
    if failing is None or passing is None:
        return None
    if outcome.unit in DIFFERENCES:
        return abs(passing - failing)
    small, large = sorted((failing, passing))
    return large / small if small > 0 else None


def _around(threshold: float, zones: list[tuple[float, float, bool]]) -> Range:
    """The stretch of good zones, joined, in which the threshold lies."""
    joined: list[tuple[float, float]] = []
    for a, b, good in zones:
        if good and joined and joined[-1][1] == a:
            joined[-1] = (joined[-1][0], b)
        elif good:
            joined.append((a, b))
    for a, b in joined:
        if a <= threshold <= b:
            return (None if math.isinf(a) else a, None if math.isinf(b) else b)
    return (None, None)
