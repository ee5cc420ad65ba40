"""Which rule survives an audit: the claims of each task side by side, in tiers told apart by paired intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from creditscope.protocol.accuracies import same_images, side_of
from creditscope.protocol.audit import Audit, JudgedCell
from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.depth import Depth
from creditscope.protocol.evidence import Ruling
from creditscope.protocol.margins import Margin, Side, common_seeds, margin
from creditscope.protocol.opponents import Opponent, backprop_gain, opponents
from creditscope.quantities.per_epoch import GAMMA_DEEP
from creditscope.records.log import RunLog
from creditscope.records.spec import RunSpec


@dataclass(frozen=True)
class Survivor:
    """One claim.

    Args:
        judged: The cell with its verdict.
        opponent: The strongest of its opponents; None where there is none among the logs.
        share: Its margin over that opponent as a share of backprop's own; None where backprop gains nothing.
        cosine: Mean over seeds of the cosine of its credit with the gradient, or of its updates with backprop's, in
            the deep blocks; None where neither was measured.
        of_updates: Whether the cosine is that of the updates.
        tier: From 1, the best; None where the task cannot tell or nothing was compared.
    """

    judged: JudgedCell
    opponent: Opponent | None
    share: float | None
    cosine: float | None
    of_updates: bool
    tier: int | None = None

    @property
    def cell(self) -> Cell:
        """Its runs."""
        return self.judged.cell

    @property
    def verdict(self) -> str:
        """In words."""
        return "" if self.judged.verdict is None else str(self.judged.verdict.kind)

    @property
    def exact(self) -> bool:
        """Whether its credit is the true gradient at every state by construction: its cosine is 1 and says nothing."""
        return all(bool(run.header.exact) and all(run.header.exact or ()) for run in self.cell.runs)

    @property
    def fired(self) -> tuple[str, ...]:
        """The required checks that fired."""
        return tuple(o.name for o in self.judged.outcomes if o.required and o.ruling is Ruling.FIRES)

    @property
    def leaks(self) -> bool | None:
        """Whether some block was seen to move when later weights did; None where nobody tried."""
        seen = {run.header.locality for run in self.cell.runs}
        return True if False in seen else False if seen == {True} else None


@dataclass(frozen=True)
class Contest:
    """The claims of one task, best tier first.

    Args:
        name: Model, data and epochs.
        control: What backprop gains over its own frozen twin; None without these runs.
        survivors: The claims.
    """

    name: str
    control: Margin | None
    survivors: tuple[Survivor, ...]

    @property
    def tells(self) -> bool:
        """Whether backprop's own gain clears the margin of the depth check: else nothing can be told from this task."""
        return self.control is not None and 100 * self.control.low() > Depth.threshold


def survival(judged: Audit) -> tuple[Contest, ...]:
    """The claims of an audit, task by task; controls whose feedback was held fixed are no claims of their own.

    Args:
        judged: The audit.
    """
    tasks: dict[tuple[object, ...], list[JudgedCell]] = {}
    for each in judged.claims:
        if not each.cell.spec.fixed_feedback:
            tasks.setdefault(_task(each.cell.spec), []).append(each)
    found = [_contest(claims) for claims in tasks.values()]
    return tuple(replace(each, name=name) for each, name in zip(found, _apart(found), strict=True))


def tiers(gains: Sequence[Side]) -> list[int]:
    """The tier of each, from 1: a new one begins where the paired interval to the best of the last lies above 0.

    Args:
        gains: What each claim gains over its opponent, by seed and where known by test sample.
    """
    order = sorted(range(len(gains)), key=lambda at: -fmean(gains[at].accuracy))
    found = [1] * len(gains)
    tier, top = 1, order[0] if order else 0
    for at in order[1:]:
        if margin(gains[top], gains[at]).low() > 0:
            tier, top = tier + 1, at
        found[at] = tier
    return found


def gain_of(found: Opponent) -> Side:
    """What a claim gains over an opponent, as a side that can be compared with another claim's.

    Args:
        found: The opponent, with its margin.
    """
    ours, theirs = side_of(found.claims), side_of(found.runs)
    if ours is None or theirs is None or found.margin.kind == "Welch":
        seeds = tuple(found.claims[row].spec.seed for row in found.margin.rows)
        return Side(found.margin.per_seed, seeds)
    common = common_seeds(ours[1], theirs[1])
    a, b = ours[1].of(common), theirs[1].of(common)
    both = a.score is not None and b.score is not None and same_images(found.claims, found.runs)
    score = a.score - b.score if both and a.score is not None and b.score is not None else None
    gains = tuple(x - y for x, y in zip(a.accuracy, b.accuracy, strict=True))
    return replace(a, accuracy=gains, score=score, variance=None)


def _contest(claims: Sequence[JudgedCell]) -> Contest:
    control = next((found for each in claims if (found := backprop_gain(each.cell)) is not None), None)
    strongest = [_strongest(each.cell) for each in claims]
    pairs = list(zip(claims, strongest, strict=True))
    contest = Contest(_name(claims[0].cell.spec), control, ())
    # Where the task cannot tell, a share of backprop's gain says nothing, and nothing is ranked.
    bp = next((found for each, found in pairs if each.cell.method == "bp"), None) if contest.tells else None
    rows = [_survivor(each, found, bp) for each, found in pairs]
    if contest.tells:
        compared = [at for at, found in enumerate(strongest) if found is not None]
        places = tiers([gain_of(found) for found in strongest if found is not None])
        for at, tier in zip(compared, places, strict=True):
            rows[at] = replace(rows[at], tier=tier)
    return replace(contest, survivors=tuple(sorted(rows, key=_place)))


def _strongest(cell: Cell) -> Opponent | None:
    """The opponent that is hardest to beat."""
    found = opponents(cell)
    return min(found, key=lambda each: (each.margin.low(), each.margin.mean), default=None)


def _survivor(each: JudgedCell, found: Opponent | None, bp: Opponent | None) -> Survivor:
    share = found.margin.mean / bp.margin.mean if found is not None and bp is not None and bp.margin.mean > 0 else None
    of_updates = each.cell.family != "signal"
    read = _update_cosine if of_updates else GAMMA_DEEP.last
    values = [value for run in each.cell.runs if (value := read(run)) is not None]
    return Survivor(each, found, share, fmean(values) if values else None, of_updates)


def _update_cosine(run: RunLog) -> float | None:
    """Mean over the deep blocks of the cosine of the rule's parameter gradient with backprop's, at the last probe."""
    for probe in reversed(run.probes):
        if probe.gradient_cosine is not None:
            known = [value for value in probe.gradient_cosine[1:] if value is not None]
            return fmean(known) if known else None
    return None


def _place(row: Survivor) -> tuple[bool, int, float]:
    gain = row.opponent.margin.mean if row.opponent is not None else 0.0
    return row.opponent is None, row.tier or 0, -gain


def _task(spec: RunSpec) -> tuple[object, ...]:
    data = spec.data and (spec.data.name, spec.data.hash_train, spec.data.hash_test)
    model = (spec.model_text, spec.width, spec.depth, spec.terminal_ln)
    return (*model, data, spec.targets, spec.epochs, spec.batch, spec.augment, spec.dtype)


def _apart(contests: Sequence[Contest]) -> list[str]:
    """Names that tell tasks apart; those of one name differ at least in what is hashed."""
    names = [each.name for each in contests]
    specs = [each.survivors[0].cell.spec for each in contests]
    found = []
    for name, spec in zip(names, specs, strict=True):
        alike = [other for other, its in zip(specs, names, strict=True) if its == name]
        if len({other.terminal_ln for other in alike}) == len(alike) > 1:
            name += ", terminal LN" if spec.terminal_ln else ", no terminal LN"
        elif len(alike) > 1:
            name += f" #{spec.match_key[:6]}"
        found.append(name)
    return found


def _name(spec: RunSpec) -> str:
    data = spec.data.name if spec.data is not None else "unknown data"
    epochs = "" if spec.epochs is None else f", {spec.epochs} epochs"
    return f"{spec.model_text or 'unknown model'} on {data}{epochs}"
