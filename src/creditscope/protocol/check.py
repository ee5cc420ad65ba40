"""What a check is: one question put to a cell of runs, with its threshold, its text and how its answer is shown."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

from creditscope.errors import NotMeasured
from creditscope.protocol.evidence import (
    Evidence,
    Grade,
    History,
    Ruling,
    SeedOutcome,
    Side,
    json_interval,
    json_number,
)
from creditscope.protocol.text import counted, number, quantity, span
from creditscope.records.rows import EpochRow, ProbeRow

if TYPE_CHECKING:
    from creditscope.protocol.cells import Cell
    from creditscope.protocol.facts import RunFacts
    from creditscope.protocol.spill import Spill
    from creditscope.records.log import RunLog
    from creditscope.records.table import Table


@dataclass(frozen=True)
class Outcome:
    """What a check says of a cell.

    Args:
        check: The check.
        ruling: passes, fires, undecided, not applicable or not measured.
        evidence: The cell's: worst seed, or the cell statistic.
        reason: In words.
        per_seed: Each run's part.
        settles: The measurement that would settle what is open; None when nothing is.
        required: Whether it counts in the verdict.
        baseline: What it was compared with, for depth.
        details: Further numbers of this check.
        history: When the pooled outcome fired, for checks that pool their seeds.
    """

    check: "Check"
    ruling: Ruling
    evidence: Evidence
    reason: str
    per_seed: tuple[SeedOutcome, ...] = ()
    settles: str | None = None
    required: bool = True
    baseline: dict[str, Any] | None = None
    details: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)

    @property
    def name(self) -> str:
        """The check's name."""
        return self.check.name

    @property
    def unit(self) -> str:
        """The unit of value, interval and threshold."""
        return self.check.unit

    @property
    def threshold(self) -> float:
        """Where the check changes its mind."""
        return self.check.threshold

    @property
    def distance(self) -> float | None:
        """How far from the threshold: a factor (above 1 passes), or a difference (above 0 passes)."""
        return self.check.distance(self.evidence.value)

    @property
    def agree(self) -> tuple[int, int] | None:
        """How many of how many seeds lie, taken alone, on the side that was ruled; None where no side was."""
        if self.ruling not in (Ruling.PASSES, Ruling.FIRES) or not self.per_seed:
            return None
        if self.check.pooled:
            points = [seed.evidence.value for seed in self.per_seed]
            sides = [None if v is None else _point(v, self.threshold, self.check.side) for v in points]
        else:
            sides = [seed.ruling for seed in self.per_seed]
        return sum(side is self.ruling for side in sides), len(sides)

    @property
    def first_epoch(self) -> int | None:
        """The earliest epoch at which any seed fired; for checks that pool their seeds, at which the cell did."""
        if self.check.pooled:
            return self.history.first
        return min((s.history.first for s in self.per_seed if s.history.first is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON entry."""
        return {
            "name": self.name,
            "outcome": str(self.ruling),
            "grade": str(self.evidence.grade),
            "value": json_number(self.evidence.value),
            "unit": self.unit,
            "interval": json_interval(self.evidence.interval),
            "threshold": self.threshold,
            "distance": json_number(self.distance),
            "per_seed": [seed.to_dict() for seed in self.per_seed],
            "first_epoch": self.first_epoch,
            "baseline": self.baseline,
            "reason": self.reason,
            "settles": self.settles,
            "agree": None if self.agree is None else list(self.agree),
            "required": self.required,
            "fires_when": self.check.side,
            "details": self.details,
        }


def _point(value: float, threshold: float, side: Side) -> Ruling:
    return Evidence.point(value, Grade.EXACT).ruling(threshold, side)


@dataclass(frozen=True)
class CheckText:
    """What is said around one check.

    Args:
        title: The heading of its section.
        question: What it asks.
        healthy: How to read its plot and its numbers.
        advice: What to do when it fires.
    """

    title: str
    question: str
    healthy: str
    advice: str


@dataclass(frozen=True)
class CheckPlot:
    """The plot in a check's section of the report.

    Args:
        quantities: What may be chosen, by name in the table of quantities; the first is shown at first.
        view: Against epochs or against layers, at first.
        lines: On which of the quantities the threshold is drawn.
        baselines: Whether frozen runs are drawn too.
    """

    quantities: tuple[str, ...]
    view: Literal["epochs", "layers"] = "epochs"
    lines: tuple[str, ...] = ()
    baselines: bool = False


class Check(ABC):
    """One question put to a cell.

    A check of your own says ``name``, ``side``, ``threshold`` and ``judge``; everything else has a default. One that
    reads single rows is shorter as an ``EpochCheck`` or ``ProbeCheck``, and those are watched live too.

    Args:
        threshold: Where it changes its mind; None: the threshold of its class.
    """

    name: ClassVar[str]
    side: ClassVar[Side] = "below"
    threshold: float
    # Thresholds that make sense.
    allowed: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    unit: ClassVar[str] = ""
    # Whether the unit stands behind a number that is shown: "3 pp" does, "0.2 cosine" does not.
    shows_unit: ClassVar[bool] = True
    # Whether a value is compared with the threshold by their difference; else by their ratio.
    by_difference: ClassVar[bool] = False
    title: ClassVar[str] = ""
    question: ClassVar[str] = ""
    healthy: ClassVar[str] = ""
    advice: ClassVar[str] = ""
    # The measurement that would settle an open outcome.
    settled_by: ClassVar[str] = ""
    plot: ClassVar[CheckPlot | None] = None
    # Whether it can fire while a run goes on, and how many rows in a row must fire before it counts.
    live: ClassVar[bool] = False
    in_a_row: ClassVar[int] = 1
    # Whether all seeds are judged together: one alone then says nothing, and only the whole has a history.
    pooled: ClassVar[bool] = False
    # The share of cells exactly at the threshold that pass by chance; 0 where nothing is estimated.
    by_chance: ClassVar[float] = 0.0
    # Whether ``judge`` looks at rows other than a run's last epoch. One that overrides ``read`` need not.
    keeps_rows: ClassVar[bool] = True

    def __init__(self, threshold: float | None = None) -> None:
        if threshold is not None:
            self.threshold = threshold

    @abstractmethod
    def judge(self, cell: "Cell") -> Outcome:
        """Judge a cell of runs that differ only in seed."""

    def read(self, run: "RunLog", facts: "RunFacts") -> Any:
        """What it must know of the rows of one run, for ``cell.readings``; the last epoch is known anyway."""
        return None

    def put_away(self, reading: Any, spill: "Spill") -> Any:
        """What it read of one run of thousands; large parts go to a spill."""
        return reading

    def fires_on(self, facts: "RunFacts", row: EpochRow | ProbeRow, epoch: EpochRow | None) -> bool | None:
        """Whether one row of a live run fires; None when the check does not read such rows.

        Args:
            facts: The run.
            row: The row.
            epoch: The epoch row of the same epoch, where it came before.
        """
        return None

    def alert(self, facts: "RunFacts", row: EpochRow | ProbeRow, fires: bool) -> str:
        """What an alert says besides the check and the epoch."""
        return f"{self.in_a_row} rows in a row" if fires and self.in_a_row > 1 else ""

    def distance(self, value: float | None) -> float | None:
        """How far on the passing side: a difference above 0, or a factor above 1."""
        if value is None or not self.by_difference:
            return self._factor(value)
        return self.threshold - value if self.side == "above" else value - self.threshold

    def near(self, value: float | None) -> bool:
        """Whether a value lies within ×2 of the threshold."""
        factor = self._factor(value) if self.by_difference else self.distance(value)
        return factor is not None and 0.5 <= factor <= 2

    def _factor(self, value: float | None) -> float | None:
        if value is None or value <= 0 or self.threshold <= 0:
            return None
        return self.threshold / value if self.side == "above" else value / self.threshold

    def show(self, value: float | None) -> str:
        """A value as tables and reasons give it."""
        return quantity(value, self.unit if self.shows_unit else "")

    def show_interval(self, low: float | None, high: float | None) -> str:
        """The same for an interval."""
        return span(low, high, self.unit if self.shows_unit else "")

    def line(self) -> tuple[float, str]:
        """Where the threshold lies on a plot, and its label."""
        return self.threshold, f"threshold {number(self.threshold)}"

    def extra(self, judged: Sequence[tuple[str, "Cell", Outcome]]) -> "Table | None":
        """A further table for its section of the report; the table's title heads it.

        Args:
            judged: Label, cell and outcome of each claim.
        """
        return None

    @final
    @property
    def text(self) -> CheckText:
        """Its text; what is not said follows from its name, its docstring and its threshold."""
        return CheckText(
            self.title or self.name.replace("_", " ").replace("-", " ").capitalize(),
            self.question or (type(self).__doc__ or "").strip().partition("\n")[0],
            self.healthy or f"The check fires {self.side} {self.show(self.threshold)}.",
            self.advice,
        )

    @final
    def at(self, threshold: float) -> Self:
        """The same check with another threshold."""
        made = copy.copy(self)
        made.threshold = threshold
        return made

    @final
    def outcome(
        self,
        evidence: Evidence,
        reason: str,
        per_seed: tuple[SeedOutcome, ...] = (),
        settles: str | None = None,
        baseline: dict[str, Any] | None = None,
        details: dict[str, Any] | None = None,
        history: History | None = None,
    ) -> Outcome:
        """Rule on evidence and fill in everything that follows from it; ``settles`` is ``settled_by`` if not given."""
        ruling = evidence.ruling(self.threshold, self.side)
        if self.near(evidence.value):
            reason += "; near threshold"
        is_open = ruling in (Ruling.UNDECIDED, Ruling.NOT_MEASURED) or evidence.grade is Grade.PROXY
        return Outcome(
            check=self,
            ruling=ruling,
            evidence=evidence,
            reason=reason,
            per_seed=per_seed,
            settles=((self.settled_by if settles is None else settles) or None) if is_open else None,
            baseline=baseline,
            details=details or {},
            history=history or History(),
        )

    @final
    def not_measured(self, why: str, settles: str | None = None, per_seed: tuple[SeedOutcome, ...] = ()) -> Outcome:
        """The outcome when there is nothing to judge."""
        return self.outcome(Evidence.missing(why), why, per_seed, settles)

    @final
    def not_applicable(self, why: str, per_seed: tuple[SeedOutcome, ...] = ()) -> Outcome:
        """The outcome when the question makes no sense here: neither a pass nor a gap."""
        return Outcome(self, Ruling.NOT_APPLICABLE, Evidence.missing(why), why, per_seed)

    @final
    def judge_safely(self, cell: "Cell") -> Outcome:
        """Judge; an exception becomes ``not measured`` with its message, and the other checks go on."""
        try:
            outcome: object = self.judge(cell)
            if not isinstance(outcome, Outcome):
                raise TypeError(f"judge gave {type(outcome).__name__}, wanted what self.outcome(...) gives")
            return outcome
        except NotMeasured as error:
            return self.not_measured(str(error))
        except Exception as error:
            return self.not_measured(f"the check failed: {said(error)}", settles="")


def said(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def sentence(check: Check, label: str, evidence: Evidence, seeds: tuple[SeedOutcome, ...]) -> str:
    """The plain statement of an outcome: quantity, side, threshold, how many seeds, where, since when."""
    ruling = evidence.ruling(check.threshold, check.side)
    if ruling is Ruling.NOT_MEASURED:
        return "; ".join(evidence.notes) or "not measured"
    limit = check.show(check.threshold)
    shown = check.show(evidence.value)
    sign = {"above": (">", "≤"), "below": ("<", "≥")}[check.side]
    links = {Ruling.FIRES: sign[0], Ruling.PASSES: sign[1], Ruling.UNDECIDED: "leaves open the threshold"}
    if evidence.value is None:
        shown = "not finite" if evidence.low == evidence.high else check.show_interval(evidence.low, evidence.high)
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
