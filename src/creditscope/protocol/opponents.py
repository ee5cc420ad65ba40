"""What a claim's accuracy is compared with: its frozen twin, the readout alone, its control; each with its margin."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from creditscope.protocol.accuracies import same_images, side_of
from creditscope.protocol.cells import Cell, completed, unstated
from creditscope.protocol.evidence import Grade, worst
from creditscope.protocol.margins import Images, Margin, Side, margin, unpaired
from creditscope.records.log import RunLog

_GRADES: dict[Images, Grade] = {"joined": Grade.EXACT, "bounded": Grade.BOUNDED, "unknown": Grade.PROXY}


@dataclass(frozen=True)
class Opponent:
    """Something that a claim must beat, and by how much it does.

    Args:
        method: Its method name; ``a bare number`` where there are no logs.
        accuracy: Its own, a fraction, over all of its seeds.
        margin: Accuracy of the claim less its own, over the seeds that were compared.
        runs: Its logs.
        claims: The runs of the claim that were compared, in the order of the margin's rows.
        matched: Whether it is known to differ from the claim in what trains alone.
        role: ``frozen``, ``readout``, ``fixed feedback``, ``anchors alone`` or ``deep supervision``.
        over_all: The margin of all seeds, unpaired, where some of the claim's are not among the pairs.
    """

    method: str
    accuracy: float
    margin: Margin
    runs: tuple[RunLog, ...]
    claims: tuple[RunLog, ...]
    matched: bool
    role: str
    over_all: Margin | None = None

    @property
    def grade(self) -> Grade:
        """How good the margin is as evidence."""
        return worst([_GRADES[self.margin.joined], Grade.EXACT if self.matched else Grade.PROXY])

    @property
    def unpaired(self) -> list[int | None]:
        """The seeds of either side that stand on that side alone."""
        if self.margin.kind == "Welch" or not self.runs:
            return []
        paired = {self.claims[row].spec.seed for row in self.margin.rows}
        seeds = [run.spec.seed for run in (*self.claims, *self.runs)]
        return list(dict.fromkeys(seed for seed in seeds if seed not in paired))

    @property
    def lacks(self) -> list[int | None]:
        """The seeds of the claim that the opponent was not trained on."""
        ours = {run.spec.seed for run in self.claims}
        return [seed for seed in self.unpaired if seed in ours]

    def high(self, level: float) -> float:
        """Upper end of the margin's interval: whoever chooses the seeds of an opponent chooses not the verdict.

        Args:
            level: What it may miss, both sides together.
        """
        return max(found.high(level) for found in (self.margin, self.over_all) if found is not None)


def opponents(cell: Cell) -> tuple[Opponent, ...]:
    """Every opponent of a claim that is among the logs: the frozen twin first, then readouts, each cell once.

    Args:
        cell: The claim, with what belongs next to it.
    """
    found: list[Opponent | None] = []
    if cell.baseline is not None:
        if cell.baseline.accuracy is not None:
            found.append(_against(cell, cell.baseline.accuracy, (), "a bare number", False, "frozen"))
        else:
            found.append(_runs(cell, cell.baseline.runs, cell.baseline.matched, "frozen"))
    found += [_runs(cell, runs, not unstated(cell.spec), "readout") for runs in cell.related.readouts]
    return tuple(opponent for opponent in found if opponent is not None)


def fixed_feedback(cell: Cell) -> Opponent | None:
    """The claim against the same rule whose feedback stays at its start.

    Args:
        cell: The claim.
    """
    return _runs(cell, cell.related.fixed_feedback, True, "fixed feedback")


def anchors_alone(cell: Cell) -> Opponent | None:
    """The claim against its batches of backprop alone.

    Args:
        cell: The claim.
    """
    return _runs(cell, cell.related.anchors_alone, True, "anchors alone")


def deep_supervision(cell: Cell) -> Opponent | None:
    """The claim against backprop with a loss at every state; it decides nothing.

    Args:
        cell: The claim.
    """
    return _runs(cell, cell.related.deep_supervision, not unstated(cell.spec), "deep supervision")


def backprop_gain(cell: Cell) -> Margin | None:
    """What backprop gains on this task over its own frozen twin: the positive control; None without its logs.

    Args:
        cell: The claim.
    """
    bp, frozen = cell.related.control, cell.related.control_frozen
    ours, theirs = side_of(bp), side_of(frozen)
    return None if ours is None or theirs is None else margin(ours[1], _on_same_images(theirs[1], bp, frozen))


def _runs(cell: Cell, runs: Sequence[RunLog], matched: bool, role: str) -> Opponent | None:
    side = side_of(runs)
    if side is None:
        return None
    theirs = _on_same_images(side[1], cell.runs, runs)
    return _against(cell, theirs, side[0], runs[0].spec.method, matched, role)


def _against(
    cell: Cell, theirs: Side | float, runs: tuple[RunLog, ...], method: str, matched: bool, role: str
) -> Opponent | None:
    """Unfinished runs never match: they are left out where there are logs on the other side."""
    ours = side_of([run for run in cell.runs if completed(run) or not runs])
    if ours is None:
        return None
    claims, side = ours
    accuracy = theirs if isinstance(theirs, float) else fmean(theirs.accuracy)
    found = margin(side, theirs)
    alone = not isinstance(theirs, float) and found.kind == "paired" and len(found.rows) < len(claims)
    over_all = unpaired(side, theirs) if alone and isinstance(theirs, Side) else None
    return Opponent(method, accuracy, found, runs, claims, matched, role, over_all)


def _on_same_images(side: Side, *groups: Sequence[RunLog]) -> Side:
    """A side whose images are paired with the other's only where both were tested on the same."""
    return side if same_images(*groups) else Side(side.accuracy, side.seeds, None, side.images, side.variance)
