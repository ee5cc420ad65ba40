"""What a check may say: outcomes, grades, evidence, and the rule that turns one into the other."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Side = Literal["above", "below"]


class Ruling(StrEnum):
    """The closed list of what a check can say; never silence, never an assumed pass."""

    PASSES = "passes"
    FIRES = "fires"
    UNDECIDED = "undecided"
    NOT_APPLICABLE = "not applicable"
    NOT_MEASURED = "not measured"


class Grade(StrEnum):
    """How good the evidence is, best first."""

    EXACT = "exact"
    BOUNDED = "bounded"
    PROXY = "proxy"
    MISSING = "missing"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Grade).index(self)


def worst(grades: Iterable[Grade]) -> Grade:
    """The weakest of some grades; ``missing`` of none."""
    return max(grades, key=lambda grade: grade.rank, default=Grade.MISSING)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was learnt about one quantity: the true value lies in [low, high].

    Args:
        value: The measured value; None when only bounds are known.
        low: Lower end; −∞ when open.
        high: Upper end; ∞ when open.
        grade: How good the evidence is.
        notes: Where the value stands (a block), or which assumption was used.
        passes_to: From this threshold on something besides the interval stands in the way of a pass.
        fires_to: The same for firing.
    """

    value: float | None
    low: float
    high: float
    grade: Grade
    notes: tuple[str, ...] = ()
    passes_to: float = math.inf
    fires_to: float = math.inf

    @classmethod
    def point(cls, value: float, grade: Grade, *notes: str) -> "Evidence":
        """A measured value."""
        return cls(value, value, value, grade, tuple(filter(None, notes)))

    @classmethod
    def missing(cls, why: str) -> "Evidence":
        """Nothing was measured."""
        return cls(None, -math.inf, math.inf, Grade.MISSING, (why,))

    @property
    def interval(self) -> tuple[float | None, float | None] | None:
        """The two ends, None where open; None when it is a point or nothing is known."""
        if self.low == self.high or (math.isinf(self.low) and math.isinf(self.high)):
            return None
        return (None if math.isinf(self.low) else self.low, None if math.isinf(self.high) else self.high)

    def ruling(self, threshold: float, side: Side) -> Ruling:
        """Decide: fires only when the whole interval lies beyond the threshold, passes only when none of it does.

        What else must hold is said by ``passes_to`` and ``fires_to``, where it depends on the threshold or fails.

        Args:
            threshold: Where the check changes its mind.
            side: On which side of the threshold it fires.
        """
        if self.grade is Grade.MISSING:
            return Ruling.NOT_MEASURED
        fires = self.low > threshold if side == "above" else self.high < threshold
        passes = self.high <= threshold if side == "above" else self.low >= threshold
        if fires and threshold < self.fires_to:
            return Ruling.FIRES
        return Ruling.PASSES if passes and threshold < self.passes_to else Ruling.UNDECIDED


@dataclass(frozen=True, slots=True)
class History:
    """When a check fired over a run.

    Args:
        first: First epoch at which it fired; None when it never did.
        recovered: First epoch of the last stretch without firing, when it had fired before and no longer does.
    """

    first: int | None = None
    recovered: int | None = None

    @classmethod
    def of(cls, fired: Iterable[tuple[int, bool]], in_a_row: int = 1) -> "History":
        """Sum up (epoch, whether it fired) in order; only the last of so many in a row counts."""
        first = recovered = None
        streak = 0
        for epoch, fires in fired:
            streak = streak + 1 if fires else 0
            if streak >= in_a_row:
                first, recovered = (epoch if first is None else first), None
            elif first is not None and recovered is None:
                recovered = epoch
        return cls(first, recovered)


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """One run's part in an outcome.

    Args:
        seed: The run's seed; None when it is not known.
        log: The log the numbers come from.
        epoch: The epoch judged.
        ruling: What the check says of this run.
        evidence: From what.
        history: When it fired.
    """

    seed: int | None
    log: str
    epoch: int | None
    ruling: Ruling
    evidence: Evidence
    history: History = field(default_factory=History)

    def to_dict(self) -> dict[str, Any]:
        """The entry of ``per_seed``."""
        return {
            "seed": self.seed,
            "value": json_number(self.evidence.value),
            "interval": json_interval(self.evidence.interval),
            "outcome": str(self.ruling),
            "grade": str(self.evidence.grade),
            "epoch": self.epoch,
            "first_epoch": self.history.first,
            "recovered_epoch": self.history.recovered,
            "log": self.log,
            "notes": list(self.evidence.notes),
        }


def combine(seeds: Iterable[SeedOutcome], side: Side) -> Evidence:
    """The cell's evidence: the worst seed. Any seed that fires fires; all that pass pass; else undecided.

    Args:
        seeds: One outcome per run.
        side: On which side of the threshold the check fires.
    """
    parts = list(seeds)
    measured = [seed.evidence for seed in parts if seed.ruling is not Ruling.NOT_MEASURED]
    if not measured:
        return Evidence.missing("; ".join(dict.fromkeys(note for seed in parts for note in seed.evidence.notes)))
    pick = max if side == "above" else min
    evidence = [seed.evidence for seed in parts]
    firing = [seed.evidence.grade for seed in parts if seed.ruling is Ruling.FIRES]
    # One seed on good evidence is enough to fire; to pass, the weakest seed counts.
    grade = min(firing, key=lambda g: g.rank) if firing else worst(e.grade for e in measured)
    values = [e.value for e in measured if e.value is not None]
    diverged = any(math.isinf(e.low) and e.low == e.high for e in measured)
    extreme = pick(measured, key=lambda e: (e.low, e.high) if side == "above" else (e.high, e.low))
    return Evidence(
        value=None if diverged or not values else pick(values),
        low=pick(e.low for e in evidence),
        high=pick(e.high for e in evidence),
        grade=grade,
        notes=extreme.notes,
    )


def json_number(value: float | None) -> float | None:
    """A number that JSON can carry; None for what is not finite."""
    return value if value is not None and math.isfinite(value) else None


def json_interval(interval: tuple[float | None, float | None] | None) -> list[float | None] | None:
    """An interval as JSON carries it."""
    return None if interval is None else list(interval)
