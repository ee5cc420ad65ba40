"""The same checks, live: fed row by row while runs train, it says at once when one is lost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from creditscope.protocol.check import Check, sentence
from creditscope.protocol.checks.direction import PROBES_IN_A_ROW, Direction
from creditscope.protocol.checks.point import EpochCheck, PointCheck, ProbeCheck
from creditscope.protocol.facts import RunFacts, initial_stream
from creditscope.protocol.presets import protocol_named
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
    streak: int = 0


class Monitor:
    """Watches runs while they train. Point checks speak each epoch, direction after three firing probes in a row.

    Depth compares finished runs and is never watched; baseline runs are never watched.

    Args:
        protocol: ``standard`` or ``published``.
        mode: ``alert`` only speaks; ``stop`` also asks for the run to be stopped.
        thresholds: Thresholds of one's own, by check name.
    """

    def __init__(
        self, protocol: str = "standard", mode: Mode = "alert", thresholds: Mapping[str, float] | None = None
    ) -> None:
        self.mode = mode
        self.checks = protocol_named(protocol, thresholds).required
        self.problems: list[str] = []
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
            alerts.append(self._alert(run, check, row, watched.facts, fires))
        return alerts

    def _fires(self, check: Check, watched: _Watched, row: EpochRow | ProbeRow, run: str) -> bool | None:
        """Whether a check fires on a row; None when it does not read such rows, or could not."""
        try:
            if isinstance(check, EpochCheck) and isinstance(row, EpochRow):
                return check.fires(watched.facts, row)
            if isinstance(check, ProbeCheck) and isinstance(row, ProbeRow):
                return None if getattr(row, check.field) is None else check.fires(watched.facts, row)
            if isinstance(check, Direction) and isinstance(row, ProbeRow):
                return self._direction(check, watched, row)
        except Exception as error:  # a judge must never end the training it watches
            self.problems.append(f"{run}: {check.name} failed at epoch {row.epoch}: {type(error).__name__}: {error}")
        return None

    def _direction(self, check: Direction, watched: _Watched, row: ProbeRow) -> bool | None:
        if row.epoch == 0 or row.null is None:
            return None
        beside = watched.last if watched.last is not None and watched.last.epoch == row.epoch else None
        watched.streak = watched.streak + 1 if check.fires(watched.facts, row, beside) else 0
        return watched.streak >= PROBES_IN_A_ROW

    def _alert(self, run: str, check: Check, row: EpochRow | ProbeRow, facts: RunFacts, fires: bool) -> Alert:
        stop = fires and self.mode == "stop"
        said = [f"epoch {row.epoch}: {check.name} {'fires' if fires else 'has recovered'} on {run}"]
        if isinstance(check, PointCheck):
            said.append(sentence(check, check.label, check.measure(facts, row), ()))
        else:
            said.append(f"{PROBES_IN_A_ROW} probes in a row" if fires else "a probe no longer fires")
        said += ["stopping it"] if stop else []
        return Alert(run, check.name, row.epoch, not fires, stop, "; ".join(said))
