"""Checks that read one row at a time: the same code judges a finished log and watches a live run."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar, final

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, Outcome, sentence
from creditscope.protocol.evidence import Evidence, Grade, History, Ruling, SeedOutcome, combine
from creditscope.protocol.facts import RunFacts
from creditscope.records.log import RunLog, latest
from creditscope.records.rows import EpochRow, ProbeRow

RowT = TypeVar("RowT", bound=EpochRow | ProbeRow)


class PointCheck(Check, Generic[RowT]):
    """A check on one quantity of one row.

    Its ``label`` is what reasons call the quantity; rows before ``from_epoch`` never fire.
    """

    label: ClassVar[str] = ""
    from_epoch: ClassVar[int] = 0
    # Whether a row before the last epoch can decide; it is a proxy in any case.
    old_rows_decide: ClassVar[bool] = True
    live = True
    keeps_rows = False

    @abstractmethod
    def measure(self, facts: RunFacts, row: RowT) -> Evidence:
        """What one row says."""

    @abstractmethod
    def rows(self, run: RunLog) -> Sequence[RowT]:
        """The rows that this check can read."""

    @abstractmethod
    def absent(self, run: RunLog) -> str:
        """Why there is no row to judge."""

    @abstractmethod
    def reads(self, row: EpochRow | ProbeRow) -> RowT | None:
        """The row, where it is one that this check can read."""

    def remarks(self, cell: Cell, evidence: Evidence) -> list[str]:
        """What else the reason should say."""
        return []

    def settles(self, evidence: Evidence) -> str:
        """What would settle it: advice that fits what was measured."""
        return self.settled_by

    @final
    def judge(self, cell: Cell) -> Outcome:
        """Judge each run at its last row, then the worst of them."""
        seeds: tuple[SeedOutcome, ...] = cell.readings(self)
        evidence = combine(seeds, self.side)
        text = "; ".join([sentence(self, self.label or self.name, evidence, seeds), *self.remarks(cell, evidence)])
        return self.outcome(evidence, text, seeds, self.settles(evidence))

    def read(self, run: RunLog, facts: RunFacts) -> SeedOutcome:
        """One run at its last logged epoch, with its history."""
        rows = [row for row in self.rows(run) if row.epoch >= self.from_epoch]
        row = latest(rows)
        evidence = self.measure(facts, row) if row is not None else Evidence.missing(self.absent(run))
        if (
            row is not None
            and run.last is not None
            and row.epoch != run.last.epoch
            and evidence.grade is not Grade.MISSING
        ):
            stale = f"probed at epoch {row.epoch}, not at the last epoch {run.last.epoch}"
            low, high = (evidence.low, evidence.high) if self.old_rows_decide else (-math.inf, math.inf)
            evidence = Evidence(evidence.value, low, high, Grade.PROXY, (*evidence.notes, stale))
        ruling = evidence.ruling(self.threshold, self.side)
        history = History.of(((row.epoch, self.fires(facts, row)) for row in rows), self.in_a_row)
        if row is not None and ruling is Ruling.FIRES and history.first is None:
            history = History(first=row.epoch)
        return SeedOutcome(run.spec.seed, run.name, row.epoch if row else None, ruling, evidence, history)

    @final
    def fires(self, facts: RunFacts, row: RowT) -> bool:
        """Whether one row fires."""
        ruling = self.measure(facts, row).ruling(self.threshold, self.side)
        return row.epoch >= self.from_epoch and ruling is Ruling.FIRES

    @final
    def fires_on(self, facts: RunFacts, row: EpochRow | ProbeRow, epoch: EpochRow | None) -> bool | None:
        """The same, for any row of a live run."""
        mine = self.reads(row)
        return None if mine is None else self.fires(facts, mine)

    def alert(self, facts: RunFacts, row: EpochRow | ProbeRow, fires: bool) -> str:
        """What the row says."""
        mine = self.reads(row)
        return "" if mine is None else sentence(self, self.label or self.name, self.measure(facts, mine), ())


class EpochCheck(PointCheck[EpochRow]):
    """A point check on what is measured every epoch."""

    @final
    def rows(self, run: RunLog) -> Sequence[EpochRow]:
        """Every epoch."""
        return run.epochs

    @final
    def reads(self, row: EpochRow | ProbeRow) -> EpochRow | None:
        """An epoch's row."""
        return row if isinstance(row, EpochRow) else None

    @final
    def absent(self, run: RunLog) -> str:
        """The log is empty, or holds only the untrained net."""
        return "the log holds no epoch to judge" if not run.epochs else "the log holds no trained epoch"


class ProbeCheck(PointCheck[ProbeRow]):
    """A point check on the expensive set; ``field`` is the probe it reads."""

    field: ClassVar[str]

    @final
    def rows(self, run: RunLog) -> Sequence[ProbeRow]:
        """The probe rows that hold the field."""
        return [row for row in run.probes if self.reads(row) is not None]

    @final
    def reads(self, row: EpochRow | ProbeRow) -> ProbeRow | None:
        """A probe's row, where it holds the field."""
        return row if isinstance(row, ProbeRow) and getattr(row, self.field) is not None else None

    @final
    def absent(self, run: RunLog) -> str:
        """What the last probe says about the missing field."""
        for row in reversed(run.probes):
            if self.field in row.not_measured:
                return f"{self.field}: {row.not_measured[self.field]}"
        return f"the log holds no {self.field} probe"
