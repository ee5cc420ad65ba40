"""An audit as sections of tables and lines, for a terminal, a review (Markdown) or a paper (LaTeX)."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from creditscope.protocol.cells import accuracy_of
from creditscope.protocol.check import Outcome
from creditscope.protocol.disclosure import changes, disclosures
from creditscope.protocol.evidence import Grade, History, Ruling
from creditscope.protocol.sensitivity import DIFFERENCES, Range, gaps
from creditscope.protocol.text import counted, listed, number, span
from creditscope.quantities.per_epoch import HIDDEN, REFERENCE
from creditscope.records.log import RunLog
from creditscope.records.table import Table, markdown, visible

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit, JudgedCell

Form = Literal["table", "md", "latex"]
_NOT_ASKED = Ruling.NOT_APPLICABLE


@dataclass(frozen=True)
class Section:
    """A titled table, or titled lines.

    Args:
        title: The heading.
        table: The table, or None.
        lines: Lines; one that starts with a space belongs to the line above it.
        narrow: The table for a terminal too narrow for ``table``; None wraps it instead.
    """

    title: str
    table: Table | None = None
    lines: tuple[str, ...] = ()
    narrow: Table | None = None


def sections(
    audit: "Audit", *, timeline: bool = True, sensitivity: bool = False, decisions: bool = False
) -> list[Section]:
    """Everything an audit has to say, in order.

    Args:
        audit: The audit.
        timeline: First firing epochs and what an alert would have saved.
        sensitivity: Ranges of thresholds over which outcomes and verdicts stay.
        decisions: What accuracy alone, accuracy and Γ, each check and the whole say.
    """
    found = [
        Section(heading(audit), verdict_table(audit), narrow=long_table(audit)),
        *words(audit),
        Section("Runs", runs_table(audit)),
    ]
    if timeline:
        found.append(Section("Over time", timeline_table(audit)))
    if decisions:
        found.append(
            Section("What each way of judging says", decisions_table(audit), narrow=long_decisions_table(audit))
        )
    if sensitivity:
        found.append(Section("Thresholds that change nothing (the others as they are)", stays_table(audit)))
        found.append(Section("Gap between the healthiest failing and the worst passing run", gaps_table(audit)))
    return [section for section in found if section.lines or (section.table is not None and section.table.rows)]


def words(audit: "Audit") -> list[Section]:
    """Why each verdict, what would settle what is open, and what the audit discloses.

    Args:
        audit: The audit.
    """
    said = {
        "Why": _why(audit),
        "What would settle it": _settle(audit),
        "What this audit discloses": disclosures(audit),
    }
    return [Section(title, lines=lines) for title, lines in said.items() if lines]


def render(found: Sequence[Section], form: Form, width: int | None = None) -> str:
    """Sections as text.

    Args:
        found: The sections.
        form: For a terminal, Markdown, or LaTeX (tables only).
        width: Columns of the terminal.
    """
    if form == "latex":
        tables = [(section.title, section.table) for section in found if section.table is not None]
        return "\n\n".join(Table(t.columns, t.rows, t.align, title).to_latex() for title, t in tables)
    if form == "md":
        return "\n\n".join(_markdown(section) for section in found)
    return "\n\n".join(_text(section, width) for section in found)


def heading(audit: "Audit") -> str:
    """Which protocol, how many cells, what was set and assumed."""
    return "; ".join([_judged(audit), *changes(audit)])


def _judged(audit: "Audit") -> str:
    return f"Protocol {audit.protocol.title}; {counted(len(audit.claims), 'cell')} judged"


def caption(audit: "Audit") -> str:
    """The heading of a table that stands alone: with all that an audit discloses.

    Args:
        audit: The audit.
    """
    return "; ".join([_judged(audit), *disclosures(audit)])


def asked(audit: "Audit") -> list[str]:
    """The required checks that apply to some claim: a column that says nothing is left out.

    Args:
        audit: The audit.
    """
    idle = {
        check.name
        for check in audit.protocol.required
        if all(o.ruling is Ruling.NOT_APPLICABLE for c in audit.claims for o in c.outcomes if o.name == check.name)
    }
    return [check.name for check in audit.protocol.required if check.name not in idle]


def under(audit: "Audit") -> str:
    """Said of a verdict under a protocol that is not quite the one which ships under its name; empty otherwise.

    Args:
        audit: The audit.
    """
    protocol = audit.protocol
    return f" under {protocol.label}" if protocol.added or protocol.dropped else ""


def verdict_table(audit: "Audit") -> Table:
    """One row a cell, one column a required check: outcome, seeds that agree, value, grade where it is not exact."""
    names = asked(audit)
    rows = []
    for cell in audit.cells:
        outcomes = {outcome.name: outcome for outcome in cell.outcomes}
        shown = _kind(cell, audit, "\n")
        checks = [_cell(outcomes[name]) if name in outcomes else "" for name in names]
        rows.append((f"{cell.cell.label}\n{counted(len(cell.cell.runs), 'seed')}", _accuracy(cell), *checks, shown))
    return Table(("method", "accuracy", *names, f"verdict{under(audit)}"), tuple(rows))


def long_table(audit: "Audit") -> Table:
    """One row a cell and check: for narrow terminals."""
    rows, names = [], asked(audit)
    for cell in audit.claims:
        for outcome in (o for o in cell.outcomes if o.name in names):
            grade, seeds = str(outcome.evidence.grade), agreeing(outcome)
            value = " ".join(filter(None, (_value(outcome), _over(outcome))))
            limit = number(outcome.threshold)
            rows.append((cell.cell.label, outcome.name, str(outcome.ruling), grade, value, limit, seeds))
        rows.append((cell.cell.label, "verdict", _kind(cell, audit, "; "), "", "", "", ""))
    return Table(("method", "check", "outcome", "grade", "value", "threshold", "seeds"), tuple(rows))


def runs_table(audit: "Audit") -> Table:
    """One row a run: what was read, and from which log."""
    rows = []
    for cell in audit.cells:
        for run in cell.cell.runs:
            stream = HIDDEN.last(run)
            gradient, state = _deepest(run)
            accuracy = accuracy_of(run)
            rows.append(
                (
                    cell.cell.label,
                    "?" if run.spec.seed is None else str(run.spec.seed),
                    _reached(run),
                    "–" if accuracy is None else f"{accuracy:.4f}",
                    "–" if stream is None else number(stream),
                    "–" if gradient is None else f"{number(gradient)} (g_{state})",
                    run.name,
                )
            )
    norms = (HIDDEN.symbol_at("L"), "‖g‖ per sample")
    return Table(("method", "seed", "epoch", "accuracy", *norms, "log"), tuple(rows), files="log")


def timeline_table(audit: "Audit") -> Table:
    """First firing epoch per check and run, recovery, and what an alert would have saved."""
    rows = []
    for cell in audit.claims:
        for run in cell.timelines:
            saved = ""
            if run.alert_epoch is not None and run.saved_epochs is not None:
                share = f" ({run.saved_fraction:.0%})" if run.saved_fraction is not None else ""
                seconds = f", {run.saved_seconds:.3g} s" if run.saved_seconds is not None else ""
                saved = f"alert at {run.alert_epoch}: {run.saved_epochs} epochs{share}{seconds}"
            seed = "?" if run.seed is None else str(run.seed)
            rows.append((cell.cell.label, seed, *_since(run.firings), saved or "–"))
        if pooled := cell.pooled_history:
            rows.append((cell.cell.label, "all", *_since(pooled), "–"))
    columns = ("method", "seed", "fires since epoch", "fired, then recovered", "compute an alert would have saved")
    return Table(columns, tuple(rows))


def _since(histories: Mapping[str, History]) -> tuple[str, str]:
    """What still fires at the end, and what no longer does."""
    firing = [f"{name} {h.first}" for name, h in histories.items() if h.recovered is None]
    recovered = [
        f"{name} {h.first}, recovered {h.recovered}" for name, h in histories.items() if h.recovered is not None
    ]
    return ", ".join(firing) or "–", "; ".join(recovered) or "–"


def decisions_table(audit: "Audit") -> Table:
    """What the usual numbers say next to what the checks say."""
    names = asked(audit)
    rows = []
    for cell in audit.claims:
        decision, outcomes = cell.decision, {outcome.name: outcome for outcome in cell.outcomes}
        alone = f"{decision.by_accuracy}\n{_against(decision.accuracy, decision.chance)}"
        pair = f"{decision.by_accuracy_and_gamma}\nΓ = {number(decision.gamma)}"
        shown = str(cell.verdict.kind) if cell.verdict else ""
        rows.append((cell.cell.label, alone, pair, shown, *(str(outcomes[name].ruling) for name in names)))
    return Table(("method", "accuracy alone", "accuracy and Γ", "whole verdict", *names), tuple(rows))


def long_decisions_table(audit: "Audit") -> Table:
    """The decision table with one row a cell and way of judging."""
    wide = decisions_table(audit)
    rows = [
        (row[0], way, says.replace("\n", " (") + ")" * says.count("\n"))
        for row in wide.rows
        for way, says in zip(wide.columns[1:], row[1:], strict=True)
    ]
    return Table(("method", "judged by", "says"), tuple(rows))


def stays_table(audit: "Audit") -> Table:
    """Range of each threshold over which outcome and verdict stay as they are."""
    rows, names = [], asked(audit)
    for cell in audit.claims:
        silent = {o.name: str(o.ruling) for o in cell.outcomes if o.ruling in (Ruling.NOT_MEASURED, _NOT_ASKED)}
        for stay in (stay for stay in cell.stays if stay.check in names):
            outcome = silent.get(stay.check) or _range(stay.outcome)
            rows.append((cell.cell.label, stay.check, number(stay.threshold), outcome, _range(stay.verdict)))
    return Table(("method", "check", "threshold", "outcome stays for", "verdict stays for"), tuple(rows))


def gaps_table(audit: "Audit") -> Table:
    """How wide the gap is in which each threshold lies."""
    rows = []
    for gap in gaps([(c.cell.label, [o for o in c.outcomes if o.required]) for c in audit.claims]):
        factor = gap.unit not in DIFFERENCES
        width = "–" if gap.width is None else f"×{number(gap.width)}" if factor else f"{number(gap.width)} {gap.unit}"
        failing = "none fails" if gap.failing is None else f"{number(gap.failing)} ({gap.failing_log})"
        passing = "none passes" if gap.passing is None else f"{number(gap.passing)} ({gap.passing_log})"
        rows.append((gap.check, failing, passing, width))
    return Table(("check", "healthiest failing", "worst passing", "gap"), tuple(rows))


def _why(audit: "Audit") -> tuple[str, ...]:
    lines, names = [], asked(audit)
    for cell in audit.claims:
        seeds = listed("?" if seed is None else seed for seed in cell.cell.seeds)
        many = "s" if len(cell.cell.seeds) > 1 else ""
        lines.append(f"{cell.cell.label} (seed{many} {seeds}): {_kind(cell, audit, '; ')}{under(audit)}")
        for outcome in cell.outcomes:
            if outcome.ruling is _NOT_ASKED and outcome.name not in names:
                continue
            if outcome.required or outcome.ruling is not Ruling.NOT_MEASURED:
                mark = "" if outcome.required else " (advisory)"
                grade = f", {outcome.evidence.grade}" if outcome.evidence.grade is not Grade.MISSING else ""
                lines.append(f"  {outcome.name}{mark} {outcome.ruling}{grade}: {outcome.reason}")
        lines += [f"  note: {run.name}: {problem}" for run in cell.cell.runs for problem in run.problems]
    return tuple(lines)


def _kind(cell: "JudgedCell", audit: "Audit", then: str) -> str:
    """The verdict with its remarks."""
    if cell.verdict is None:
        return "baseline"
    return then.join([str(cell.verdict.kind), *remarks(cell, audit)])


def remarks(cell: "JudgedCell", audit: "Audit") -> list[str]:
    """What belongs on the line of a verdict: advisory checks that disagree with it, and whether it hangs on one seed.

    Args:
        cell: A claim.
        audit: Under which protocol.
    """
    said = []
    if cell.verdict is not None and cell.verdict.disagrees:
        against = [o.name for o in cell.outcomes if not o.required and o.ruling is Ruling.FIRES]
        said.append(f"{listed(against)} (advisory) disagree{'s' if len(against) == 1 else ''}")
    if len(cell.cell.runs) == 1 and not audit.protocol.pools_seeds:
        said.append("1 seed, point estimate")
    return said


def agreeing(outcome: Outcome) -> str:
    """On how many of how many seeds a side was taken that was ruled; empty where none was.

    Args:
        outcome: Of a cell.
    """
    return "" if outcome.agree is None else "{} of {}".format(*outcome.agree)


def _over(outcome: Outcome) -> str:
    """The opponent that decided, for a check that compares with one."""
    method = (outcome.baseline or {}).get("method")
    return f"over {method}" if method else ""


def _settle(audit: "Audit") -> tuple[str, ...]:
    """The same measurement often settles several cells: say it once, for all of them."""
    asked: dict[str, list[str]] = {}
    for cell in audit.claims:
        for line in cell.verdict.settles if cell.verdict else ():
            asked.setdefault(line, []).append(cell.cell.label)
    return tuple(f"{line} (for {listed(dict.fromkeys(methods))})" for line, methods in asked.items())


def _cell(outcome: Outcome) -> str:
    parts = [", ".join(filter(None, (str(outcome.ruling), agreeing(outcome))))]
    if outcome.ruling not in (Ruling.NOT_MEASURED, _NOT_ASKED):
        parts += [_value(outcome), _over(outcome)]
        if outcome.evidence.grade is not Grade.EXACT:
            parts.append(str(outcome.evidence.grade))
    return "\n".join(part for part in parts if part)


def _value(outcome: Outcome) -> str:
    if outcome.evidence.value is not None:
        return outcome.check.show(outcome.evidence.value)
    interval = outcome.evidence.interval
    return "" if interval is None else outcome.check.show_interval(*interval)


def _accuracy(cell: "JudgedCell") -> str:
    mean, sd = cell.accuracy["mean"], cell.accuracy["sd"]
    return "–" if mean is None else f"{mean:.4f}" + ("" if sd is None else f"\n± {sd:.4f}")


def _reached(run: RunLog) -> str:
    last = "–" if run.last is None else str(run.last.epoch)
    return last if run.finished else f"{last} ({run.end.status if run.end else 'unfinished'})"


def _deepest(run: RunLog) -> tuple[float | None, int | None]:
    norms = (REFERENCE.read(run.last, run.units) if run.last else None) or ()
    known = [(value, state) for state, value in enumerate(norms) if value is not None]
    return known[-1] if known else (None, None)


def _against(accuracy: float | None, chance: float | None) -> str:
    if accuracy is None:
        return "no accuracy logged"
    return f"{accuracy:.4f}, chance " + ("not stated" if chance is None else f"{chance:.4f}")


def _range(ends: Range) -> str:
    return "any" if ends == (None, None) else span(*ends, "")


def _text(section: Section, width: int | None) -> str:
    wide = width or 10_000
    head = textwrap.wrap(section.title, wide)
    if section.table is not None:
        too_wide = section.narrow is not None and section.table.least_width > wide
        table = section.narrow if too_wide and section.narrow is not None else section.table
        return "\n".join([*head, "", table.to_text(width)])
    lines: list[str] = []
    for line in section.lines:
        indent = " " * (len(line) - len(line.lstrip()))
        body = textwrap.wrap(
            visible(line.strip(), keep=""), wide, initial_indent=indent, subsequent_indent=indent + "    "
        )
        lines += body or [""]
    return "\n".join([*head, "", *lines])


def _markdown(section: Section) -> str:
    if section.table is not None:
        return f"**{markdown(section.title)}**\n\n{section.table.to_markdown()}"
    bullets = [f"{'  ' if line.startswith(' ') else ''}- {markdown(line.strip())}" for line in section.lines]
    return "\n".join([f"**{markdown(section.title)}**", "", *bullets])
