"""Read a log once and let its rows go: what the checks read of it, its last rows, and its curve are enough to judge."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from creditscope.errors import NotMeasured
from creditscope.protocol.check import Check
from creditscope.protocol.facts import Assumptions, RunFacts
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, Norms, ProbeRow

# What nothing says of a run once the checks have read it: the bulk of a header and of an epoch.
_HEADER_BULK: dict[str, Any] = {"fleet": None, "provenance": {}}
_EPOCH_BULK = dict.fromkeys(("cosine", "cosine_published", "movement"))


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
    """A run that some checks have read: of its rows only what the words of an audit speak of.

    A fortieth of the memory of the log. Only the checks that read it can judge it.

    Args:
        facts: What else a judge must know of it.
        curve: Accuracy and wall-clock of every epoch.
        readings: What each check read; the error, where it could not.
    """

    facts: RunFacts
    curve: Curve
    readings: Mapping[Check, Any]


def read_run(log: RunLog, checks: Iterable[Check], assume: Assumptions) -> ReadRun:
    """Let each check read a log, and keep what a judgement needs.

    Args:
        log: The whole log.
        checks: Those that will judge it.
        assume: What a user assumed.
    """
    facts = RunFacts.of(log, assume)
    return ReadRun(
        name=log.name,
        header=log.header.model_copy(update=_HEADER_BULK),
        epochs=tuple(map(_spoken_of, log.epochs[-1:])),
        probes=_last_fidelity(log),
        end=log.end,
        problems=log.problems,
        facts=facts,
        curve=Curve.of(log),
        readings={check: _read(check, log, facts) for check in checks},
    )


def facts_of(run: RunLog, assume: Assumptions) -> RunFacts:
    """What a judge must know of a run besides its rows."""
    return run.facts if isinstance(run, ReadRun) else RunFacts.of(run, assume)


def curve_of(run: RunLog) -> Curve:
    """Accuracy and wall-clock of every epoch of a run."""
    return run.curve if isinstance(run, ReadRun) else Curve.of(run)


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


def _read(check: Check, log: RunLog, facts: RunFacts) -> Any:
    try:
        return check.read(log, facts)
    except Exception as error:  # one check that fails must not stop the others: it is raised when it comes to judge
        return error.with_traceback(None)


def _spoken_of(row: EpochRow) -> EpochRow:
    norms = {"hidden": _medians(row.hidden), "reference": _medians(row.reference)}
    return row.model_copy(update=_EPOCH_BULK | norms)


def _medians(norms: Norms | None) -> Norms | None:
    return None if norms is None else Norms(median=norms.median, n=norms.n)


def _last_fidelity(log: RunLog) -> tuple[ProbeRow, ...]:
    for row in reversed(log.probes):
        if row.fidelity is not None:
            return (ProbeRow(epoch=row.epoch, fidelity=row.fidelity, nonfinite=row.nonfinite),)
    return ()
