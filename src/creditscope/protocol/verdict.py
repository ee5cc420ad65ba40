"""From outcomes to a verdict, with its reasons."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from creditscope.protocol.check import Outcome
from creditscope.protocol.evidence import Grade, Ruling


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
    """

    kind: VerdictKind
    reasons: tuple[str, ...]
    settles: tuple[str, ...] = ()


def rule(parts: Iterable[tuple[Ruling, Grade]]) -> VerdictKind:
    """Any required check fires → walked back; all pass on exact or bounded evidence → trustworthy; else incomplete.

    Args:
        parts: Ruling and grade of each required check.
    """
    parts = list(parts)
    if any(ruling is Ruling.FIRES for ruling, _ in parts):
        return VerdictKind.WALKED_BACK
    if all(ruling is Ruling.PASSES and grade in (Grade.EXACT, Grade.BOUNDED) for ruling, grade in parts):
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
        reasons = [f"every required check passes: {', '.join(outcome.name for outcome in required)}"]
    else:
        reasons = [_reason(outcome) for outcome in (firing or unsettled)]
    settles = [f"{outcome.name}: {outcome.settles}" for outcome in unsettled if outcome.settles]
    return Verdict(kind, tuple(reasons), tuple(settles))


def _open(outcome: Outcome) -> bool:
    return outcome.ruling in (Ruling.UNDECIDED, Ruling.NOT_MEASURED) or outcome.evidence.grade is Grade.PROXY


def _reason(outcome: Outcome) -> str:
    grade = f", {outcome.evidence.grade}" if outcome.evidence.grade is not Grade.EXACT else ""
    return f"{outcome.name} {outcome.ruling}{grade}: {outcome.reason}"
