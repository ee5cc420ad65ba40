"""Cosine and ρ over the deep blocks 1..L−1, at the states 2..L where their credit acts."""

from collections.abc import Sequence

import numpy as np

from creditscope.figures.means import FLOOR, Mean, at, common_epochs, mean_over
from creditscope.quantities.expensive import RHO
from creditscope.quantities.per_epoch import COSINE, REFERENCE
from creditscope.quantities.quantity import ProbeQuantity
from creditscope.records import EpochRow, ProbeRow, RunLog

FIRST_DEEP_STATE = 2


def probe_at(log: RunLog, epoch: int) -> ProbeRow | None:
    """The expensive probe of an epoch, the latest if it was taken twice.

    Args:
        log: The run.
        epoch: The epoch.
    """
    return next((row for row in reversed(log.probes) if row.epoch == epoch), None)


def probed_epochs(logs: Sequence[RunLog]) -> list[int]:
    """The epochs at which every run has both its row and its expensive probe.

    Args:
        logs: The runs.
    """
    return [epoch for epoch in common_epochs(logs) if all(probe_at(log, epoch) is not None for log in logs)]


def last_usable(logs: Sequence[RunLog]) -> int | None:
    """The last expensively probed epoch at which ‖g_L‖ of every run is at or above the floor; None when there is none.

    Args:
        logs: The runs.
    """

    def passes(log: RunLog, epoch: int) -> bool:
        norm = REFERENCE.at(at(log, epoch), log.units)
        return norm is not None and norm >= FLOOR

    return max((epoch for epoch in probed_epochs(logs) if all(passes(log, epoch) for log in logs)), default=None)


def last_probed(logs: Sequence[RunLog]) -> int | None:
    """The last expensively probed epoch; without any probe the last common epoch.

    Args:
        logs: The runs.
    """
    return max(probed_epochs(logs) or common_epochs(logs), default=None)


def _deep_states(row: EpochRow, exact_too: bool = False) -> list[int]:
    wanted = ("ok", "exact-by-construction") if exact_too else ("ok",)
    statuses = COSINE.status(row)
    return [state for state in range(FIRST_DEEP_STATE, len(statuses)) if statuses[state] in wanted]


def _average(numbers: list[float | None] | None, states: Sequence[int]) -> float | None:
    known = [numbers[s] for s in states if numbers is not None and s < len(numbers)]
    held = [value for value in known if value is not None]
    return float(np.mean(held)) if held else None


def deep_cosine(logs: Sequence[RunLog], epoch: int, exact_too: bool = False) -> Mean:
    """Mean cosine over the deep states that are not exact by construction, then over runs.

    Args:
        logs: The runs.
        epoch: A common epoch.
        exact_too: Count exact states too: for the gradient itself, as a control.
    """

    def value(log: RunLog) -> float | None:
        row = at(log, epoch)
        return _average(COSINE.read(row, log.units), _deep_states(row, exact_too))

    return mean_over((log.name, value(log)) for log in logs)


def deep_rho(logs: Sequence[RunLog], epoch: int, rho: ProbeQuantity = RHO) -> Mean:
    """Mean ρ over the deep states, then over runs.

    Args:
        logs: The runs.
        epoch: A probed epoch.
        rho: Of the credit, or of a control.
    """

    def value(log: RunLog) -> float | None:
        probe = probe_at(log, epoch)
        numbers = (rho.read(probe, log.units) if probe is not None else None) or []
        return _average(numbers, range(FIRST_DEEP_STATE, len(numbers)))

    return mean_over((log.name, value(log)) for log in logs)


def deep_null(logs: Sequence[RunLog], epoch: int) -> tuple[Mean, int]:
    """The fresh-feedback null of the deep cosine: its mean, and its standard deviation over the redraws.

    Args:
        logs: The runs.
        epoch: A probed epoch.

    Returns:
        The mean over runs, with low and high one standard deviation over redraws away, and the redraws a run.
    """
    means: list[tuple[str, float | None]] = []
    variances: list[float] = []
    redraws = 0
    for log in logs:
        probe = probe_at(log, epoch)
        states = _deep_states(at(log, epoch))
        null = COSINE.null(probe) if probe is not None else None
        if null is None or not states:
            continue
        means.append((log.name, _average(null.mean, states)))
        redraws = null.redraws
        sds = [null.sd[s] for s in states if s < len(null.sd)]
        if null.draws is not None:
            table = np.array([null.draws[s] for s in states], dtype=np.float64)
            variances.append(float(np.nanmean(table, axis=0).var(ddof=1)))
        elif None not in sds:
            # Each block has its own matrix, so the redrawn cosines of different states are independent.
            variances.append(float(np.sum(np.square(np.array(sds, dtype=np.float64)))) / len(sds) ** 2)
    mean = mean_over(means)
    if mean.y is None or not variances:
        return mean, redraws
    sd = float(np.sqrt(np.mean(variances)))
    return Mean(mean.y, mean.y - sd, mean.y + sd, mean.n, mean.logs), redraws
