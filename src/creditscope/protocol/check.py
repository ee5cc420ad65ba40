"""What a check is, and what it may say: outcomes, grades, evidence, and the rule that turns one into the other."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from creditscope.protocol.text import counted, quantity, span

if TYPE_CHECKING:
    from creditscope.protocol.cells import Cell
    from creditscope.protocol.facts import RunFacts
    from creditscope.protocol.spill import Spill
    from creditscope.records.log import RunLog

Side = Literal["above", "below"]


class Ruling(StrEnum):
    """The closed list of what a check can say; never silence, never an assumed pass."""

    PASSES = "passes"
    FIRES = "fires"
    UNDECIDED = "undecided"
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
    """

    value: float | None
    low: float
    high: float
    grade: Grade
    notes: tuple[str, ...] = ()

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

        Args:
            threshold: Where the check changes its mind.
            side: On which side of the threshold it fires.
        """
        if self.grade is Grade.MISSING:
            return Ruling.NOT_MEASURED
        fires = self.low > threshold if side == "above" else self.high < threshold
        passes = self.high <= threshold if side == "above" else self.low >= threshold
        return Ruling.FIRES if fires else Ruling.PASSES if passes else Ruling.UNDECIDED


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
    def of(cls, fired: Iterable[tuple[int, bool]]) -> "History":
        """Sum up (epoch, whether it fired) in order."""
        first = recovered = None
        for epoch, fires in fired:
            if fires:
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
            "value": _json(self.evidence.value),
            "interval": _list(self.evidence.interval),
            "outcome": str(self.ruling),
            "grade": str(self.evidence.grade),
            "epoch": self.epoch,
            "first_epoch": self.history.first,
            "recovered_epoch": self.history.recovered,
            "log": self.log,
            "notes": list(self.evidence.notes),
        }


@dataclass(frozen=True)
class Outcome:
    """What a check says of a cell.

    Args:
        name: The check.
        ruling: passes, fires, undecided or not measured.
        evidence: The cell's: worst seed, or the cell statistic.
        unit: Of value, interval and threshold.
        threshold: Where the check changes its mind.
        side: On which side of it the check fires.
        distance: How far from it: a factor (above 1 passes), or a difference (above 0 passes).
        per_seed: Each run's part.
        reason: In words.
        settles: The measurement that would settle what is open; None when nothing is.
        required: Whether it counts in the verdict.
        baseline: What it was compared with, for depth.
        details: Further numbers of this check.
    """

    name: str
    ruling: Ruling
    evidence: Evidence
    unit: str
    threshold: float
    side: Side
    reason: str
    distance: float | None = None
    per_seed: tuple[SeedOutcome, ...] = ()
    settles: str | None = None
    required: bool = True
    baseline: dict[str, Any] | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def first_epoch(self) -> int | None:
        """The earliest epoch at which any seed fired."""
        return min((s.history.first for s in self.per_seed if s.history.first is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON entry."""
        return {
            "name": self.name,
            "outcome": str(self.ruling),
            "grade": str(self.evidence.grade),
            "value": _json(self.evidence.value),
            "unit": self.unit,
            "interval": _list(self.evidence.interval),
            "threshold": self.threshold,
            "distance": _json(self.distance),
            "per_seed": [seed.to_dict() for seed in self.per_seed],
            "first_epoch": self.first_epoch,
            "baseline": self.baseline,
            "reason": self.reason,
            "settles": self.settles,
            "required": self.required,
            "fires_when": self.side,
            "details": self.details,
        }


class Check(ABC):
    """One question put to a cell.

    Args:
        threshold: Where it changes its mind.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = ""
    side: ClassVar[Side] = "below"

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    @abstractmethod
    def judge(self, cell: "Cell") -> Outcome:
        """Judge a cell of runs that differ only in seed."""

    def read(self, run: "RunLog", facts: "RunFacts") -> Any:
        """What it must know of the rows of one run, for ``cell.readings``; the last epoch is known anyway."""
        return None

    def put_away(self, reading: Any, spill: "Spill") -> Any:
        """What it read of one of thousands of runs, with its bulk on a spill."""
        return reading

    def distance(self, value: float | None) -> float | None:
        """Factor between value and threshold, above 1 on the passing side."""
        if value is None or value <= 0 or self.threshold <= 0:
            return None
        return self.threshold / value if self.side == "above" else value / self.threshold

    def near(self, value: float | None) -> bool:
        """Whether a value lies within ×2 of the threshold."""
        distance = self.distance(value)
        return distance is not None and 0.5 <= distance <= 2

    @final
    def outcome(
        self,
        evidence: Evidence,
        reason: str,
        per_seed: tuple[SeedOutcome, ...] = (),
        settles: str | None = None,
        baseline: dict[str, Any] | None = None,
        details: dict[str, Any] | None = None,
    ) -> Outcome:
        """Rule on evidence and fill in everything that follows from it."""
        ruling = evidence.ruling(self.threshold, self.side)
        if self.near(evidence.value):
            reason += "; near threshold"
        return Outcome(
            name=self.name,
            ruling=ruling,
            evidence=evidence,
            unit=self.unit,
            threshold=self.threshold,
            side=self.side,
            reason=reason,
            distance=self.distance(evidence.value),
            per_seed=per_seed,
            settles=settles
            if ruling in (Ruling.UNDECIDED, Ruling.NOT_MEASURED) or evidence.grade is Grade.PROXY
            else None,
            baseline=baseline,
            details=details or {},
        )

    @final
    def not_measured(self, why: str, settles: str | None = None, per_seed: tuple[SeedOutcome, ...] = ()) -> Outcome:
        """The outcome when there is nothing to judge."""
        return self.outcome(Evidence.missing(why), why, per_seed, settles)

    @final
    def judge_safely(self, cell: "Cell") -> Outcome:
        """Judge; an exception becomes ``not measured`` with its message, and the other checks go on."""
        try:
            return self.judge(cell)
        except Exception as error:
            message = str(error).splitlines()[0] if str(error) else "no message"
            return self.not_measured(f"the check failed: {type(error).__name__}: {message}")


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


def sentence(check: Check, label: str, evidence: Evidence, seeds: tuple[SeedOutcome, ...]) -> str:
    """The plain statement of an outcome: quantity, side, threshold, how many seeds, where, since when."""
    ruling = evidence.ruling(check.threshold, check.side)
    if ruling is Ruling.NOT_MEASURED:
        return "; ".join(evidence.notes) or "not measured"
    unit = check.unit if check.unit in ("×", "pp") else ""
    limit = quantity(check.threshold, unit)
    shown = quantity(evidence.value, unit)
    sign = {"above": (">", "≤"), "below": ("<", "≥")}[check.side]
    links = {Ruling.FIRES: sign[0], Ruling.PASSES: sign[1], Ruling.UNDECIDED: "leaves open the threshold"}
    if evidence.value is None:
        shown = "not finite" if evidence.low == evidence.high else span(evidence.low, evidence.high, unit)
        links |= {Ruling.FIRES: "lies beyond the threshold", Ruling.PASSES: "clears the threshold"}
    text = f"{label} {shown} {links[ruling]} {limit}"
    if len(seeds) > 1:
        k = sum(seed.ruling is ruling for seed in seeds)
        text += f" on {k} of {counted(len(seeds), 'seed')}"
    return "; ".join([text, *evidence.notes, *_history(ruling, seeds)])


def _history(ruling: Ruling, seeds: tuple[SeedOutcome, ...]) -> list[str]:
    fired = [seed for seed in seeds if seed.history.first is not None]
    if not fired:
        return []
    first = min(seed.history.first for seed in fired if seed.history.first is not None)
    if ruling is Ruling.FIRES:
        return [f"first fired at epoch {first}"]
    back = [seed.history.recovered for seed in fired if seed.history.recovered is not None]
    return [f"fired from epoch {first}, recovered by epoch {max(back)}" if back else f"fired at epoch {first}"]


def advisory(outcome: Outcome) -> Outcome:
    """The same outcome, not counted in the verdict."""
    return replace(outcome, required=False)


def _json(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _list(interval: tuple[float | None, float | None] | None) -> list[float | None] | None:
    return None if interval is None else list(interval)
