"""When each check first fired, whether it recovered, and what an alert at that epoch would have saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Outcome
from creditscope.protocol.evidence import History
from creditscope.protocol.readings import curve_of
from creditscope.records.log import RunLog


@dataclass(frozen=True)
class RunTimeline:
    """One run over time.

    Args:
        seed: Its seed.
        log: Its log.
        firings: When each check fired, for checks that ever did.
        alert_epoch: First epoch of a check that can be watched live and did not recover; None when there is none.
        alert_check: Which check that was.
        saved_epochs: Epochs trained after that alert.
        saved_fraction: The same as a fraction of all epochs trained.
        saved_seconds: Wall-clock of those epochs; None when the log does not hold it.
    """

    seed: int | None
    log: str
    firings: dict[str, History]
    alert_epoch: int | None = None
    alert_check: str | None = None
    saved_epochs: int | None = None
    saved_fraction: float | None = None
    saved_seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seed": self.seed,
            "log": self.log,
            "firings": {name: {"first": h.first, "recovered": h.recovered} for name, h in self.firings.items()},
            "alert_epoch": self.alert_epoch,
            "alert_check": self.alert_check,
            "saved_epochs": self.saved_epochs,
            "saved_fraction": self.saved_fraction,
            "saved_seconds": self.saved_seconds,
        }


def timelines(cell: Cell, outcomes: Sequence[Outcome]) -> tuple[RunTimeline, ...]:
    """The history of each run of a cell under the required checks.

    Args:
        cell: The runs.
        outcomes: What the checks said of them.
    """
    return tuple(_timeline(run, [outcome for outcome in outcomes if outcome.required]) for run in cell.runs)


def pooled_history(outcomes: Sequence[Outcome]) -> dict[str, History]:
    """When the required checks that judge all seeds together first fired, for those that ever did.

    Args:
        outcomes: Of one cell.
    """
    pooled = [outcome for outcome in outcomes if outcome.required and outcome.check.pooled]
    return {outcome.name: outcome.history for outcome in pooled if outcome.history.first is not None}


def _timeline(run: RunLog, outcomes: Sequence[Outcome]) -> RunTimeline:
    # Runs that were watched without a file may share a name, and then differ in their seed.
    mine = (run.name, run.spec.seed)
    alone = [outcome for outcome in outcomes if not outcome.check.pooled]
    histories = {o.name: s.history for o in alone for s in o.per_seed if (s.log, s.seed) == mine}
    firings = {name: history for name, history in histories.items() if history.first is not None}
    # A check that compares finished runs cannot raise an alert while a run goes on.
    live = {outcome.name for outcome in outcomes if outcome.check.live}
    lasting = [
        (history.first, name)
        for name, history in firings.items()
        if name in live and history.recovered is None and history.first is not None
    ]
    if not lasting or run.last is None:
        return RunTimeline(run.spec.seed, run.name, firings)
    epoch, check = min(lasting)
    saved = max(0, run.last.epoch - epoch)
    return RunTimeline(
        seed=run.spec.seed,
        log=run.name,
        firings=firings,
        alert_epoch=epoch,
        alert_check=check,
        saved_epochs=saved,
        saved_fraction=saved / run.last.epoch if run.last.epoch else None,
        saved_seconds=curve_of(run).seconds_after(epoch),
    )
