"""Cells: runs that differ only in seed, their role, and the baselines that match them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

from creditscope.protocol.check import Check
from creditscope.protocol.facts import Assumptions, RunFacts, diverged_at
from creditscope.protocol.readings import facts_of, reading_of
from creditscope.quantities.per_epoch import ACCURACY, BRANCH
from creditscope.records.labels import labels_of
from creditscope.records.log import RunLog
from creditscope.records.rule_card import Family
from creditscope.records.spec import RunSpec

Role = Literal["claim", "baseline"]
# A baseline whose branches add less than this to the residual stream is a linear net in all but name.
LINEAR_BRANCH = 0.01
# A weight matrix that moved by less than this share of its norm stands still.
STILL = 1e-4
_MUST_BE_KNOWN = ("model", "data", "epochs", "batch", "optimiser", "schedule")


@dataclass(frozen=True)
class Baseline:
    """What a cell's accuracy is compared with.

    Args:
        runs: The frozen runs; empty for a bare number.
        accuracy: The bare number; None when there are runs.
        unknown: What the logs leave unknown, so that the match cannot be proved.
        unused: A bare number that was given, and is not needed beside the runs.
    """

    runs: tuple[RunLog, ...] = ()
    accuracy: float | None = None
    unknown: tuple[str, ...] = ()
    unused: float | None = None

    @property
    def matched(self) -> bool:
        """Whether it is known to differ from the claim only in its frozen blocks."""
        return bool(self.runs) and not self.unknown

    @property
    def method(self) -> str | None:
        """The method of its runs."""
        return self.runs[0].spec.method if self.runs else None

    @property
    def mean(self) -> float | None:
        """Its accuracy, a fraction, over seeds."""
        return self.accuracy if self.accuracy is not None else mean_accuracy(self.runs)


@dataclass(frozen=True)
class RelatedRuns:
    """Other cells that belong next to a depth outcome; each may be absent.

    Args:
        bp_frozen: Embedding and readout trained by true backprop, blocks frozen.
        readout: Only the terminal norm and the head trained.
        bp: The same net trained by backprop, unpenalised.
        readouts: Readout-only runs of the claim's own rule and of backprop, each cell once.
        control: Backprop on the same task, unpenalised: with the claim's own optimiser settings where it was so
            trained, else the best that there is.
        control_frozen: Its frozen twin.
        fixed_feedback: The claim's own rule with feedback that stays at its start.
        anchors_alone: Of a claim with batches of backprop, runs that train on those batches and no other.
        deep_supervision: Backprop with a loss at every state, on the same task.
    """

    bp_frozen: tuple[RunLog, ...] = ()
    readout: tuple[RunLog, ...] = ()
    bp: tuple[RunLog, ...] = ()
    readouts: tuple[tuple[RunLog, ...], ...] = ()
    control: tuple[RunLog, ...] = ()
    control_frozen: tuple[RunLog, ...] = ()
    fixed_feedback: tuple[RunLog, ...] = ()
    anchors_alone: tuple[RunLog, ...] = ()
    deep_supervision: tuple[RunLog, ...] = ()


@dataclass(frozen=True)
class Cell:
    """Runs that differ only in seed.

    Args:
        runs: In the order of their seeds.
        role: Whether it makes a claim or is compared with.
        baseline: What decides its depth; None when there is none.
        related: Other baselines, reported.
        why_no_baseline: What stood in the way of a match.
        assume: What a user assumed.
        label: Its method, with what tells it from the other cells; the method alone by default.
    """

    runs: tuple[RunLog, ...]
    role: Role = "claim"
    baseline: Baseline | None = None
    related: RelatedRuns = field(default_factory=RelatedRuns)
    why_no_baseline: str = ""
    assume: Assumptions = field(default_factory=Assumptions)
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.method)

    @property
    def spec(self) -> RunSpec:
        """The spec of its first run; the others differ in seed only."""
        return self.runs[0].spec

    @property
    def method(self) -> str:
        """The method name."""
        return self.spec.method

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """The seeds, in order."""
        return tuple(run.spec.seed for run in self.runs)

    @property
    def ended_early(self) -> bool:
        """Whether some of its runs stopped before their last planned epoch; a log without an end row did."""
        return not all(run.finished for run in self.runs)

    def split(self) -> "tuple[Cell, tuple[RunLog, ...]]":
        """The runs to average, and those that ended early and are kept out of the mean.

        When every run ended early they are averaged over the epochs they share.
        """
        done = tuple(run for run in self.runs if run.finished)
        if not done:
            return self, ()
        return replace(self, runs=done), tuple(run for run in self.runs if not run.finished)

    @cached_property
    def members(self) -> tuple[tuple[RunLog, RunFacts], ...]:
        """Each run with its facts."""
        return tuple((run, facts_of(run, self.assume)) for run in self.runs)

    @property
    def family(self) -> Family:
        """What its rule can be asked: the least that all of its runs show."""
        families = {facts.family for _, facts in self.members}
        return families.pop() if len(families) == 1 else "update"

    def readings(self, check: Check) -> tuple[Any, ...]:
        """What a check reads of each run."""
        return tuple(reading_of(run, facts, check) for run, facts in self.members)


def accuracy_of(run: RunLog) -> float | None:
    """Test accuracy at the last logged epoch, a fraction; never the best."""
    value = ACCURACY.last(run)
    return value if value is not None or run.end is None else run.end.test_accuracy


def completed(run: RunLog) -> bool:
    """Whether a run ended as planned, and is logged to the last of its epochs where their number was planned.

    Args:
        run: The run.
    """
    planned, reached = run.spec.epochs, [row.epoch for row in (run.last, run.end) if row is not None]
    return run.finished and (planned is None or min(reached) >= planned)


def comparable(run: RunLog) -> bool:
    """Whether a run may be compared with: it ended as planned, its norms are finite, and frozen blocks did not move.

    Args:
        run: The run.
    """
    moved = (facts_of(run, Assumptions()).moved or 0.0) if run.spec.is_baseline else 0.0
    return completed(run) and moved < STILL and not any(map(diverged_at, run.epochs))


def unstated(spec: RunSpec) -> tuple[str, ...]:
    """What a spec leaves unknown, so that no match with it can be proved.

    Args:
        spec: The run.
    """
    return tuple(name for name in _MUST_BE_KNOWN if not spec.states(name))


def mean_accuracy(runs: Iterable[RunLog]) -> float | None:
    """Mean accuracy over runs that have one."""
    values = [value for run in runs if (value := accuracy_of(run)) is not None]
    return fmean(values) if values else None


def effectively_linear(runs: Sequence[RunLog]) -> bool | None:
    """Whether every branch of some frozen runs adds less than 1 % to the stream; None when it was not logged."""
    lasts = [BRANCH.read(run.last, run.units) for run in runs if run.last]
    ratios = [value for values in lasts for value in values or () if value is not None]
    return max(ratios) < LINEAR_BRANCH if ratios else None


def by_seed(run: RunLog) -> tuple[bool, int, str]:
    """Runs in the order of their seeds; those without one last.

    Args:
        run: The run.
    """
    return run.spec.seed is None, run.spec.seed or 0, run.name


def cells_of(
    runs: Iterable[RunLog], given: Iterable[RunLog] = (), assume: Assumptions | None = None
) -> tuple[Cell, ...]:
    """Group runs that differ only in seed, and label the groups, in order of first appearance.

    Args:
        runs: Any runs; those with frozen blocks are baselines.
        given: Further runs that are baselines by the user's word.
        assume: What a user assumed.
    """
    groups: dict[tuple[Role, str], list[RunLog]] = {}
    for run in runs:
        groups.setdefault(("baseline" if run.spec.is_baseline else "claim", run.spec.cell_key), []).append(run)
    for run in given:
        groups.setdefault(("baseline", run.spec.cell_key), []).append(run)
    members = [tuple(sorted(group, key=by_seed)) for group in groups.values()]
    labels = labels_of([group[0].spec for group in members])
    return tuple(
        Cell(group, role, assume=assume or Assumptions(), label=label)
        for (role, _), group, label in zip(groups, members, labels, strict=True)
    )
