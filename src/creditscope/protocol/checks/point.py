"""Checks that read one row at a time: the same code judges a finished log and watches a live run."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar, final

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, Evidence, Grade, History, Outcome, Ruling, SeedOutcome, combine, sentence
from creditscope.protocol.facts import RunFacts
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, ProbeRow

RowT = TypeVar("RowT", bound=EpochRow | ProbeRow)


class PointCheck(Check, Generic[RowT]):
    """A check on one quantity of one row."""

    label: ClassVar[str]
    from_epoch: ClassVar[int] = 0

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
    def settles(self, evidence: Evidence) -> str:
        """The measurement that would settle an open outcome."""

    def remarks(self, cell: Cell, evidence: Evidence) -> list[str]:
        """What else the reason should say."""
        return []

    @final
    def judge(self, cell: Cell) -> Outcome:
        """Judge each run at its last row, then the worst of them."""
        seeds: tuple[SeedOutcome, ...] = cell.readings(self)
        evidence = combine(seeds, self.side)
        text = "; ".join([sentence(self, self.label, evidence, seeds), *self.remarks(cell, evidence)])
        return self.outcome(evidence, text, seeds, self.settles(evidence))

    def read(self, run: RunLog, facts: RunFacts) -> SeedOutcome:
        """One run at its last logged epoch, with its history."""
        rows = [row for row in self.rows(run) if row.epoch >= self.from_epoch]
        row = max(rows, key=lambda row: row.epoch, default=None)
        evidence = self.measure(facts, row) if row is not None else Evidence.missing(self.absent(run))
        if (
            row is not None
            and run.last is not None
            and row.epoch < run.last.epoch
            and evidence.grade is not Grade.MISSING
        ):
            stale = f"probed at epoch {row.epoch}, not at the last epoch {run.last.epoch}"
            evidence = Evidence(evidence.value, evidence.low, evidence.high, Grade.PROXY, (*evidence.notes, stale))
        ruling = evidence.ruling(self.threshold, self.side)
        history = History.of((row.epoch, self.fires(facts, row)) for row in rows)
        return SeedOutcome(run.spec.seed, run.name, row.epoch if row else None, ruling, evidence, history)

    @final
    def fires(self, facts: RunFacts, row: RowT) -> bool:
        """Whether one row fires."""
        ruling = self.measure(facts, row).ruling(self.threshold, self.side)
        return row.epoch >= self.from_epoch and ruling is Ruling.FIRES


class EpochCheck(PointCheck[EpochRow]):
    """A point check on what is measured every epoch."""

    @final
    def rows(self, run: RunLog) -> Sequence[EpochRow]:
        """Every epoch."""
        return run.epochs

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
        return [row for row in run.probes if getattr(row, self.field) is not None]

    @final
    def absent(self, run: RunLog) -> str:
        """What the last probe says about the missing field."""
        for row in reversed(run.probes):
            if self.field in row.not_measured:
                return f"{self.field}: {row.not_measured[self.field]}"
        return f"the log holds no {self.field} probe"
