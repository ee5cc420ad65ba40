"""The same checks, live: fed row by row while runs train, it says at once when one is lost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from creditscope.protocol.check import Check, said
from creditscope.protocol.facts import RunFacts, initial_stream
from creditscope.protocol.presets import Protocol, protocol_named
from creditscope.records.rows import EndRow, EpochRow, HeaderRow, ProbeRow

Mode = Literal["alert", "stop"]


@dataclass(frozen=True)
class Alert:
    """One change of mind about one run.

    Args:
        run: The run's id.
        check: Which check.
        epoch: When.
        recovered: True when the check no longer fires.
        stop: Whether the run should be stopped now.
        message: In one line.
    """

    run: str
    check: str
    epoch: int
    recovered: bool
    stop: bool
    message: str


@dataclass
class _Watched:
    """What the monitor remembers of one run."""

    facts: RunFacts
    firing: set[str] = field(default_factory=set)
    last: EpochRow | None = None
    streaks: dict[str, int] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


class Monitor:
    """Watches runs while they train. A check speaks once as many rows in a row fire as it asks for.

    Checks that compare finished runs, such as depth, are never watched; baseline runs are never watched.

    Args:
        protocol: ``standard``, ``published``, or a ``Protocol``; its required checks are watched.
        mode: ``alert`` only speaks; ``stop`` also asks for the run to be stopped.
        thresholds: Thresholds of one's own, by check name.
        on_problem: Hears of a check that failed, the first time it does on a run; ``problems`` keeps it too.
    """

    def __init__(
        self,
        protocol: str | Protocol = "standard",
        mode: Mode = "alert",
        thresholds: Mapping[str, float] | None = None,
        on_problem: Callable[[str], object] | None = None,
    ) -> None:
        self.mode = mode
        self.checks = tuple(check for check in protocol_named(protocol, thresholds).required if check.live)
        self.problems: list[str] = []
        self._on_problem = on_problem
        self._runs: dict[str, _Watched] = {}

    def on_row(self, header: HeaderRow, row: HeaderRow | EpochRow | ProbeRow | EndRow) -> list[Alert]:
        """Take one row of one run.

        Args:
            header: The run's header.
            row: The row just written.

        Returns:
            What is new: a check that began to fire, or one that recovered.
        """
        if header.spec.is_baseline or isinstance(row, (HeaderRow, EndRow)):
            return []
        run = header.spec.run_id
        watched = self._runs.setdefault(run, _Watched(RunFacts(header)))
        if isinstance(row, EpochRow):
            if row.epoch == 0:
                watched.facts = RunFacts(header, initial=initial_stream(row))
            watched.last = row
        alerts = []
        for check in self.checks:
            fires = self._fires(check, watched, row, run)
            if fires is None or fires == (check.name in watched.firing):
                continue
            watched.firing.symmetric_difference_update({check.name})
            alerts.append(self._alert(run, check, row, watched, fires))
        return alerts

    def _fires(self, check: Check, watched: _Watched, row: EpochRow | ProbeRow, run: str) -> bool | None:
        """Whether a check fires, as many rows in a row as it asks for; None when it does not read such a row."""
        same = watched.last if watched.last is not None and watched.last.epoch == row.epoch else None
        try:
            fires = check.fires_on(watched.facts, row, same)
        except Exception as error:  # a judge must never end the training it watches
            self._note(run, check, row, watched, error)
            return None
        if fires is None:
            return None
        watched.streaks[check.name] = watched.streaks.get(check.name, 0) + 1 if fires else 0
        return watched.streaks[check.name] >= check.in_a_row

    def _note(self, run: str, check: Check, row: EpochRow | ProbeRow, watched: _Watched, error: Exception) -> None:
        if check.name in watched.failed:
            return
        watched.failed.add(check.name)
        self.problems.append(f"{run}: {check.name} failed at epoch {row.epoch}: {said(error)}")
        if self._on_problem is not None:
            self._on_problem(self.problems[-1])

    def _alert(self, run: str, check: Check, row: EpochRow | ProbeRow, watched: _Watched, fires: bool) -> Alert:
        stop = fires and self.mode == "stop"
        parts = [f"epoch {row.epoch}: {check.name} {'fires' if fires else 'has recovered'} on {run}"]
        try:
            parts.append(check.alert(watched.facts, row, fires))
        except Exception as error:  # the alert stands without its details
            self._note(run, check, row, watched, error)
        parts += ["stopping it"] if stop else []
        return Alert(run, check.name, row.epoch, not fires, stop, "; ".join(filter(None, parts)))
