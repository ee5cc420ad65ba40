"""An audit at a glance: one line a claim, what fires or is open, and how many stand."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from creditscope.protocol.check import Outcome
from creditscope.protocol.evidence import Grade, Ruling
from creditscope.protocol.present import Section, heading, words
from creditscope.records.table import Table

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit, JudgedCell


def brief_sections(audit: "Audit") -> list[Section]:
    """The verdicts, of each claim what fires or is open, in a clause each, and what would settle it.

    Args:
        audit: The audit.
    """
    why = Section("What fires or is open", lines=_why(audit))
    rest = [section for section in words(audit) if section.title != "Why"]
    return [Section(heading(audit), brief_table(audit)), *([why] if why.lines else []), *rest]


def _why(audit: "Audit") -> tuple[str, ...]:
    lines: list[str] = []
    for cell in audit.claims:
        told = [outcome for outcome in cell.outcomes if outcome.ruling is Ruling.FIRES and outcome.required]
        told += [outcome for outcome in cell.outcomes if _is_open(outcome)]
        if told:
            lines.append(f"{cell.cell.label}: {cell.verdict.kind if cell.verdict else ''}")
            lines += [f"  {outcome.name} {_said(outcome)}: {outcome.reason.split('; ')[0]}" for outcome in told]
    return tuple(lines)


def brief_table(audit: "Audit") -> Table:
    """One row a claim: its verdict, the checks that fire (advisory ones in parentheses), and those that are open.

    Args:
        audit: The audit.
    """
    rows = tuple(
        (
            cell.cell.label,
            str(len(cell.cell.runs)),
            _accuracy(cell),
            str(cell.verdict.kind) if cell.verdict else "",
            _names(cell, lambda outcome: outcome.ruling is Ruling.FIRES),
            _names(cell, _is_open),
        )
        for cell in audit.claims
    )
    return Table(("method", "seeds", "accuracy", "verdict", "fires", "open"), rows, ("left", "right"))


def tally(audit: "Audit") -> str:
    """How many claims stand: ``7 trustworthy · 8 walked back · 2 incomplete``.

    Args:
        audit: The audit.
    """
    return " · ".join(f"{len(cells)} {kind}" for kind, cells in audit.by_kind.items())


def _said(outcome: Outcome) -> str:
    grade = outcome.evidence.grade
    return str(outcome.ruling) if grade in (Grade.EXACT, Grade.MISSING) else f"{outcome.ruling}, {grade}"


def _is_open(outcome: Outcome) -> bool:
    if not outcome.required or outcome.ruling in (Ruling.FIRES, Ruling.NOT_APPLICABLE):
        return False
    return outcome.ruling is not Ruling.PASSES or outcome.evidence.grade is Grade.PROXY


def _names(cell: "JudgedCell", wanted: Callable[[Outcome], bool]) -> str:
    found = [o for o in cell.outcomes if wanted(o)]
    names = [o.name for o in found if o.required] + [f"({o.name})" for o in found if not o.required]
    return ", ".join(names) or "–"


def _accuracy(cell: "JudgedCell") -> str:
    mean = cell.accuracy["mean"]
    return "–" if mean is None else f"{mean:.4f}"
