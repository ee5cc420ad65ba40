"""Read a log once and let its rows go: what the checks read of it, its last rows, and its curve are enough to judge."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from creditscope.errors import NotMeasured
from creditscope.protocol.check import Check
from creditscope.protocol.facts import Assumptions, RunFacts
from creditscope.protocol.inference import read_bits, read_counts
from creditscope.protocol.spill import Slot, Spill
from creditscope.records.log import RunLog
from creditscope.records.measured import Fidelity, Norms
from creditscope.records.rows import EndRow, EpochRow, HeaderRow, ProbeRow
from creditscope.records.spec_parts import Frozen

# What nothing says of a run once the checks have read it: the bulk of a header and of an epoch.
_HEADER_BULK: dict[str, Any] = {"fleet": None, "provenance": {}, "blocks": None}
_EPOCH_BULK = dict.fromkeys(("cosine", "cosine_published", "movement"))
_SPEC_PARTS = ("data", "optimiser", "feedback", "probe")
_RecordT = TypeVar("_RecordT", bound=Frozen)


@dataclass(frozen=True)
class Curve:
    """Two numbers of every logged epoch.

    Args:
        epoch: Epochs done.
        accuracy: On the test split, a fraction; NaN where it was not logged.
        seconds: Wall-clock of the epoch; NaN where it was not logged.
    """

    epoch: "array[int]"
    accuracy: "array[float]"
    seconds: "array[float]"

    @classmethod
    def of(cls, run: RunLog) -> "Curve":
        """The curve of a whole log."""
        return cls(
            array("q", [row.epoch for row in run.epochs]),
            array("d", [nan if row.test_accuracy is None else row.test_accuracy for row in run.epochs]),
            array("d", [nan if row.time_epoch is None else row.time_epoch for row in run.epochs]),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "Curve":
        """The curve that ``to_bytes`` wrote.

        Args:
            data: Its bytes.
        """
        third = len(data) // 3
        return cls(array("q", data[:third]), array("d", data[third : 2 * third]), array("d", data[2 * third :]))

    def to_bytes(self) -> bytes:
        """Its three lists, one behind the other."""
        return self.epoch.tobytes() + self.accuracy.tobytes() + self.seconds.tobytes()

    @property
    def accuracies(self) -> dict[int, float]:
        """Accuracy by epoch, where it was logged."""
        return {e: value for e, value in zip(self.epoch, self.accuracy, strict=True) if not isnan(value)}

    def seconds_after(self, epoch: int) -> float | None:
        """Wall-clock of the epochs after one; None when any of them was not timed, or none follows."""
        times = [time for e, time in zip(self.epoch, self.seconds, strict=True) if e > epoch]
        return None if not times or any(map(isnan, times)) else sum(times)


@dataclass(frozen=True, kw_only=True)
class ReadRun(RunLog):
    """A run that some checks have read: of its rows only what the text of an audit mentions.

    A few KB, however long the log. Only the checks that read it can judge it.

    Args:
        facts: What else a judge must know of it.
        curve: Where accuracy and wall-clock of every epoch lie.
        correct: Where the per-image correctness of its end lies; None when it was not logged.
        readings: What each check read; the error, where it could not.
    """

    facts: RunFacts
    curve: Slot
    correct: Slot | None
    readings: Mapping[Check, Any]


class Reader:
    """Lets checks read one log after the other, and keeps of each what a judgement needs.

    Args:
        checks: Those that will judge the claims among the logs.
        assume: What a user assumed.
    """

    def __init__(self, checks: Iterable[Check], assume: Assumptions) -> None:
        self._checks = tuple(checks)
        self._assume = assume
        self._spill = Spill()
        self._shared: dict[Any, Any] = {}

    def read(self, log: RunLog) -> ReadRun:
        """Let each check read a log; of a baseline only its accuracies are kept, for the comparison.

        Args:
            log: The whole log.
        """
        header = self._header(log.header)
        whole = RunFacts.of(log, self._assume)
        checks = () if log.spec.is_baseline else self._checks
        return ReadRun(
            name=log.name,
            header=header,
            epochs=tuple(map(self._epoch, log.epochs[-1:])),
            probes=self._last_fidelity(log) if checks else (),
            end=None if log.end is None else self._lean(log.end, correct=None, right=None),
            problems=log.problems,
            facts=replace(whole, header=header),
            curve=self._spill.put(Curve.of(log).to_bytes()),
            correct=self._correct(log.end),
            readings={check: self._reading(check, log, whole) for check in checks},
        )

    def _reading(self, check: Check, log: RunLog, facts: RunFacts) -> Any:
        try:
            return check.put_away(check.read(log, facts), self._spill)
        except Exception as error:  # one check that fails must not stop the others: it is raised when it comes to judge
            return error.with_traceback(None)

    def _correct(self, end: EndRow | None) -> Slot | None:
        text = _each(end)
        return None if text is None else self._spill.put(text.encode())

    def _header(self, header: HeaderRow) -> HeaderRow:
        parts = {name: self._one(getattr(header.spec, name)) for name in _SPEC_PARTS}
        return self._lean(header, spec=self._lean(header.spec, **parts), **_HEADER_BULK)

    def _epoch(self, row: EpochRow) -> EpochRow:
        gamma = None if row.gamma is None else self._lean(row.gamma)
        norms = {"hidden": self._medians(row.hidden), "reference": self._medians(row.reference)}
        return self._lean(row, gamma=gamma, **norms, **_EPOCH_BULK)

    def _medians(self, norms: Norms | None) -> Norms | None:
        return None if norms is None else self._lean(Norms(median=norms.median, n=norms.n))

    def _last_fidelity(self, log: RunLog) -> tuple[ProbeRow, ...]:
        for row in reversed(log.probes):
            if row.fidelity is not None:
                fidelity = self._lean(Fidelity(median=row.fidelity.median, dtype=row.fidelity.dtype))
                return (self._lean(ProbeRow(epoch=row.epoch, fidelity=fidelity, nonfinite=row.nonfinite)),)
        return ()

    def _lean(self, record: _RecordT, **changes: Any) -> _RecordT:
        """The same record with some fields changed, sharing with the others what pydantic holds for each."""
        given = record.model_fields_set
        shared = self._shared.setdefault(frozenset(given), given)
        values = dict(record) | changes
        texts = {name: self._one(value) for name, value in values.items() if isinstance(value, str)}
        return type(record).model_construct(shared, **(values | texts))

    def _one(self, value: Any) -> Any:
        """The first of all equal values: runs of a sweep share most of their spec."""
        return self._shared.setdefault(value, value)


def facts_of(run: RunLog, assume: Assumptions) -> RunFacts:
    """What a judge must know of a run besides its rows."""
    return run.facts if isinstance(run, ReadRun) else RunFacts.of(run, assume)


def curve_of(run: RunLog) -> Curve:
    """Accuracy and wall-clock of every epoch of a run."""
    return Curve.from_bytes(run.curve.read()) if isinstance(run, ReadRun) else Curve.of(run)


def mean_curve(runs: Sequence[RunLog]) -> dict[int, float]:
    """Mean accuracy at the epochs that every run has logged.

    Args:
        runs: The runs.
    """
    curves = [curve_of(run).accuracies for run in runs]
    common = set.intersection(*map(set, curves)) if curves else set()
    return {epoch: fmean(curve[epoch] for curve in curves) for epoch in common}


def shares_of(run: RunLog) -> NDArray[np.float64] | None:
    """Of each test sample at the end of a run, how much was right: 0 or 1, of text a share of its tokens.

    None when it was not logged.
    """
    text = answers_of(run)
    if text is None or run.end is None or run.end.n_test is None:
        return None
    tokens = run.spec.data.tokens if run.spec.data is not None else None
    return read_bits(text, run.end.n_test) if tokens is None else read_counts(text, run.end.n_test) / tokens


def answers_of(run: RunLog) -> str | None:
    """Which test samples were right at the end of a run, as its log writes it; None when it was not logged.

    Args:
        run: The run.
    """
    if isinstance(run, ReadRun):
        return None if run.correct is None else run.correct.read().decode()
    return _each(run.end)


def _each(end: EndRow | None) -> str | None:
    return None if end is None else end.correct or end.right


def reading_of(run: RunLog, facts: RunFacts, check: Check) -> Any:
    """What a check reads of a run, now or when the run was read.

    Args:
        run: The run.
        facts: Its facts.
        check: The check.
    """
    if not isinstance(run, ReadRun):
        return check.read(run, facts)
    if check not in run.readings:
        raise NotMeasured(f"the rows of {run.name} were let go after an audit; load the log again")
    found = run.readings[check]
    if isinstance(found, Exception):
        raise found
    return found
