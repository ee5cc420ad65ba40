"""The parts of the page as plain values: cards, the decision table, one section a check, the timeline."""

from dataclasses import dataclass
from typing import Any

from creditscope.protocol.audit import Audit
from creditscope.protocol.check import Outcome, Ruling
from creditscope.protocol.present import decisions_table, stays_table, timeline_table, verdict_table
from creditscope.protocol.text import counted, listed, number, quantity, span
from creditscope.records.table import Align, Table
from creditscope.report.labels import Named, Names
from creditscope.report.words import ADVISORY, CHECKS, SYMBOLS, VERDICT_SYMBOLS, Words

_UNITS = ("×", "pp")


@dataclass(frozen=True)
class Chip:
    """One check on a card.

    Args:
        name: The check.
        ruling: Its outcome.
        symbol: The outcome as a sign.
    """

    name: str
    ruling: str
    symbol: str


@dataclass(frozen=True)
class Card:
    """A method and its verdict.

    Args:
        label: The method.
        verdict: In words.
        symbol: The verdict as a sign.
        accuracy: Mean and spread over seeds.
        gamma: The aggregate cosine, as papers give it.
        seeds: How many, how far.
        chips: The required checks.
        reasons: Why, each in one clause.
        settles: What would settle what is open.
    """

    label: str
    verdict: str
    symbol: str
    accuracy: str
    gamma: str
    seeds: str
    chips: tuple[Chip, ...]
    reasons: tuple[str, ...]
    settles: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """What a check says of one method.

    Args:
        label: The method.
        ruling: The outcome.
        symbol: As a sign.
        text: In words.
        settles: The measurement that would settle it; None when nothing is open.
    """

    label: str
    ruling: str
    symbol: str
    text: str
    settles: str | None


@dataclass(frozen=True)
class CheckSection:
    """One check over all methods.

    Args:
        name: The check.
        words: Its question, how to read it, and advice.
        required: Whether it counts in the verdict.
        numbers: The table.
        readings: Method by method.
        fires: Whether the advice is needed.
        extra: A further table: the blocks of the direction check.
    """

    name: str
    words: Words
    required: bool
    numbers: Table
    readings: tuple[Reading, ...]
    fires: bool
    extra: Table | None = None


def cards(names: Names) -> tuple[tuple[str, tuple[Card, ...]], ...]:
    """The verdict cards, by experiment.

    Args:
        names: The cells.
    """
    found = []
    for index, group in enumerate(names.groups):
        mine = tuple(_card(named) for named in names.claims if named.group == index)
        if mine:
            found.append((group, mine))
    return tuple(found)


def headline(names: Names) -> str:
    """How many methods stand, in one sentence."""
    kinds = [str(named.judged.verdict.kind) for named in names.claims if named.judged.verdict]
    parts = [f"{kinds.count(kind)} {kind}" for kind in VERDICT_SYMBOLS if kind in kinds]
    return f"{counted(len(kinds), 'claim')} judged: {listed(parts)}."


def usual_pair(names: Names) -> str:
    """How often accuracy and Γ would have accepted what the checks walk back, in one sentence."""
    accepted = [n for n in names.claims if n.judged.decision.by_accuracy_and_gamma == "looks like learning"]
    back = [n for n in accepted if n.judged.verdict and str(n.judged.verdict.kind) == "walked back"]
    text = f"Accuracy above chance and Γ above 0 would have accepted {len(accepted)} of {len(names.claims)}"
    if not accepted:
        return f"{text}."
    if not back:
        return f"{text}; none of them is walked back here."
    shown = listed(names.full(named) for named in back)
    return f"{text}; of these, {len(back)} {'is' if len(back) == 1 else 'are'} walked back here: {shown}."


def verdicts(audit: Audit, names: Names) -> Table:
    """The audit's verdict table, baselines too, under the page's names."""
    by_cell = {id(named.judged): named for named in names.cells}
    return _relabel(verdict_table(audit), [[by_cell[id(cell)]] for cell in audit.cells], names)


def decision_table(audit: Audit, names: Names) -> Table:
    """What each way of judging says, under the page's names."""
    return _relabel(decisions_table(audit), [[cell] for cell in _order(audit, names)], names)


def over_time(audit: Audit, names: Names) -> Table:
    """First firing epochs and what an alert would have saved, under the page's names."""
    return _relabel(timeline_table(audit), [[named] * len(_runs(named)) for named in _order(audit, names)], names)


def thresholds_table(audit: Audit, names: Names) -> Table:
    """Ranges of thresholds that change nothing, under the page's names."""
    return _relabel(stays_table(audit), [[named] * len(named.judged.stays) for named in _order(audit, names)], names)


def check_sections(audit: Audit, names: Names) -> tuple[CheckSection, ...]:
    """One section per required check of the protocol, then the advisory ones together.

    Args:
        audit: The audit.
        names: The cells.
    """
    required = [check.name for check in audit.protocol.required]
    found = [_section(name, (name,), names, True) for name in CHECKS if name in required]
    return (*found, _section("advisory", ADVISORY, names, False))


def _section(name: str, checks: tuple[str, ...], names: Names, required: bool) -> CheckSection:
    outcomes = [(named, o) for named in names.claims for o in named.judged.outcomes if o.name in checks]
    several = len(checks) > 1
    readings = tuple(
        Reading(
            names.full(named) + (f", {outcome.name}" if several else ""),
            str(outcome.ruling),
            SYMBOLS[outcome.ruling],
            outcome.reason,
            outcome.settles,
        )
        for named, outcome in outcomes
    )
    fires = any(outcome.ruling is Ruling.FIRES for _, outcome in outcomes)
    extra = _blocks_table(names) if name == "direction" else _baselines_table(names) if name == "depth" else None
    return CheckSection(name, CHECKS[name], required, _numbers(outcomes, names, several), readings, fires, extra)


def _numbers(outcomes: list[tuple[Named, Outcome]], names: Names, several: bool) -> Table:
    """What each check found; a column in which nothing stands is left out."""
    columns: dict[str, Align] = {"method": "left", "check": "left", "outcome": "left", "value": "right"}
    columns |= {"interval": "right", "threshold": "right", "grade": "left", "first fired": "left", "per seed": "left"}
    rows = []
    for named, outcome in outcomes:
        unit, interval = outcome.unit if outcome.unit in _UNITS else "", outcome.evidence.interval
        rows.append(
            (
                names.full(named),
                outcome.name if several else "",
                f"{SYMBOLS[outcome.ruling]} {outcome.ruling}",
                _known(outcome.evidence.value, outcome),
                "" if interval is None else span(*interval, unit),
                quantity(outcome.threshold, unit),
                str(outcome.evidence.grade),
                "never" if outcome.first_epoch is None else f"epoch {outcome.first_epoch}",
                ", ".join(f"{_seed(seed.seed)}: {_known(seed.evidence.value, outcome)}" for seed in outcome.per_seed),
            )
        )
    kept = [i for i, _ in enumerate(columns) if any(row[i] for row in rows)]
    names_of, aligns = list(columns), list(columns.values())
    picked = tuple(tuple(row[i] for i in kept) for row in rows)
    return Table(tuple(names_of[i] for i in kept), picked, tuple(aligns[i] for i in kept))


def _seed(seed: int | None) -> str:
    return "?" if seed is None else str(seed)


def _known(value: float | None, outcome: Outcome) -> str:
    """A value; φ so near 1 that four digits hide it is given by what it misses 1 by."""
    if value is None:
        return "–"
    if outcome.name == "fidelity" and 0.999 < value < 1:
        return f"1 − {1 - value:.1e}"
    return quantity(value, outcome.unit if outcome.unit in _UNITS else "")


def _blocks_table(names: Names) -> Table:
    """The blocks that the direction check judges, pooled over seeds."""
    rows: list[tuple[str, ...]] = []
    for named in names.claims:
        blocks: list[dict[str, Any]] = next(
            (o.details.get("blocks", []) for o in named.judged.outcomes if o.name == "direction"), []
        )
        exact = [str(block["block"]) for block in blocks if block["standing"] == "exact"]
        if exact:
            rows.append((names.full(named), ", ".join(exact), "–", "–", "–", "–", "exact by construction, not counted"))
        for block in (block for block in blocks if block["standing"] != "exact"):
            numbers = (_plain(block[key]) for key in ("cosine", "p", "p_holm", "null_mean"))
            rows.append((names.full(named), str(block["block"]), *numbers, block["why"] or ""))
    return Table(("method", "block", "cosine", "p", "p (Holm)", "null mean", "note"), tuple(rows))


def _baselines_table(names: Names) -> Table:
    """What each claim was compared with."""
    rows = []
    for named in names.claims:
        outcome = next((o for o in named.judged.outcomes if o.name == "depth"), None)
        base = outcome.baseline if outcome is not None else None
        if base is None:
            continue
        mean = named.judged.accuracy["mean"]
        others = [other for other in base["beside"] if other["method"] != base["method"]]
        beside = ", ".join(f"{other['method']} {_fraction(other['accuracy'])}" for other in others)
        rows.append(
            (
                names.full(named),
                _fraction(mean),
                base["method"] or "a bare number",
                _fraction(base["accuracy"]),
                "yes" if base["matched"] else "no",
                beside or "–",
            )
        )
    columns = ("method", "accuracy", "compared with", "its accuracy", "matched", "beside it")
    return Table(columns, tuple(rows))


def _fraction(value: float | None) -> str:
    return "not logged" if value is None else f"{value:.4f}"


def _plain(value: float | None) -> str:
    return "–" if value is None else number(value)


def _card(named: Named) -> Card:
    judged = named.judged
    assert judged.verdict is not None
    mean, sd, gamma = judged.accuracy["mean"], judged.accuracy["sd"], judged.decision.gamma
    accuracy = "not logged" if mean is None else f"{mean:.4f}" + ("" if sd is None else f" ± {sd:.4f}")
    return Card(
        label=named.label,
        verdict=str(judged.verdict.kind),
        symbol=VERDICT_SYMBOLS[str(judged.verdict.kind)],
        accuracy=accuracy,
        gamma="not logged" if gamma is None else f"{gamma:+.3f}".replace("-", "−"),
        seeds=_seeds(named),
        chips=tuple(Chip(o.name, str(o.ruling), SYMBOLS[o.ruling]) for o in judged.outcomes if o.required),
        reasons=tuple(reason.split("; ")[0] for reason in judged.verdict.reasons),
        settles=judged.verdict.settles,
    )


def _seeds(named: Named) -> str:
    cell = named.judged.cell
    last = {run.last.epoch for run in cell.runs if run.last is not None}
    reach = f", epoch {min(last)}" if len(last) == 1 else f", epochs {min(last)} to {max(last)}" if last else ""
    planned = cell.spec.epochs
    short = f" of {planned}" if planned is not None and last and max(last) < planned else ""
    return f"{counted(len(cell.runs), 'seed')}{reach}{short}"


def _order(audit: Audit, names: Names) -> list[Named]:
    """The page's names in the order of the audit's claims."""
    by_cell = {id(named.judged): named for named in names.cells}
    return [by_cell[id(cell)] for cell in audit.claims]


def _runs(named: Named) -> tuple[object, ...]:
    return named.judged.cell.runs


def _relabel(table: Table, owners: list[list[Named]], names: Names) -> Table:
    """The audit's own table with the page's names in its first column, in the page's order."""
    flat = [named for owner in owners for named in owner]
    place = {id(named): index for index, named in enumerate(names.cells)}
    rows = [(place[id(n)], (names.full(n), *row[1:])) for n, row in zip(flat, table.rows, strict=True)]
    return Table(table.columns, tuple(row for _, row in sorted(rows, key=lambda item: item[0])), table.align)
