"""From outcomes to a verdict, with its reasons."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from creditscope.protocol.check import Outcome
from creditscope.protocol.evidence import Grade, Ruling
from creditscope.protocol.text import listed


class VerdictKind(StrEnum):
    """What may be said of a claim."""

    TRUSTWORTHY = "trustworthy"
    WALKED_BACK = "walked back"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Args:
        kind: trustworthy, walked back or incomplete.
        reasons: One line per check that made it so.
        settles: What would settle what is open, one line per open check.
        disagrees: The advisory checks that fire on a trustworthy claim, one line each.
    """

    kind: VerdictKind
    reasons: tuple[str, ...]
    settles: tuple[str, ...] = ()
    disagrees: tuple[str, ...] = ()


def rule(parts: Iterable[tuple[Ruling, Grade]]) -> VerdictKind:
    """Any required check fires → walked back; all pass on exact or bounded evidence → trustworthy; else incomplete.

    A check that is not applicable is neither a pass nor a gap; where none is left nothing was shown.

    Args:
        parts: Ruling and grade of each required check.
    """
    parts = [(ruling, grade) for ruling, grade in parts if ruling is not Ruling.NOT_APPLICABLE]
    if any(ruling is Ruling.FIRES for ruling, _ in parts):
        return VerdictKind.WALKED_BACK
    if parts and all(ruling is Ruling.PASSES and grade in (Grade.EXACT, Grade.BOUNDED) for ruling, grade in parts):
        return VerdictKind.TRUSTWORTHY
    return VerdictKind.INCOMPLETE


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """The verdict on one cell.

    Args:
        outcomes: Of all checks; the advisory ones do not count.
    """
    required = [outcome for outcome in outcomes if outcome.required]
    kind = rule((outcome.ruling, outcome.evidence.grade) for outcome in required)
    firing = [outcome for outcome in required if outcome.ruling is Ruling.FIRES]
    unsettled = [outcome for outcome in required if _open(outcome)]
    if kind is VerdictKind.TRUSTWORTHY:
        passing = [outcome.name for outcome in required if outcome.ruling is Ruling.PASSES]
        left = [outcome.name for outcome in required if outcome.ruling is Ruling.NOT_APPLICABLE]
        without = f" ({listed(left)} not applicable)" if left else ""
        reasons = [f"every required check passes: {', '.join(passing)}{without}"]
    else:
        reasons = [_reason(outcome) for outcome in (firing or unsettled)]
    settles = [f"{outcome.name}: {outcome.settles}" for outcome in unsettled if outcome.settles]
    advisory = [outcome for outcome in outcomes if not outcome.required and outcome.ruling is Ruling.FIRES]
    against = [_reason(outcome) for outcome in advisory] if kind is VerdictKind.TRUSTWORTHY else []
    return Verdict(kind, tuple(reasons), tuple(settles), tuple(against))


def _open(outcome: Outcome) -> bool:
    if outcome.ruling is Ruling.NOT_APPLICABLE:
        return False
    return outcome.ruling in (Ruling.UNDECIDED, Ruling.NOT_MEASURED) or outcome.evidence.grade is Grade.PROXY


def _reason(outcome: Outcome) -> str:
    grade = f", {outcome.evidence.grade}" if outcome.evidence.grade is not Grade.EXACT else ""
    return f"{outcome.name} {outcome.ruling}{grade}: {outcome.reason}"
