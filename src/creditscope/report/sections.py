"""The parts of the page as plain values: cards, the decision table, one section a check, the timeline."""

from collections.abc import Mapping
from dataclasses import dataclass

from creditscope.protocol.check import Check, CheckText, Outcome, said
from creditscope.protocol.evidence import Ruling
from creditscope.protocol.present import agreeing, asked, remarks
from creditscope.protocol.text import counted, listed
from creditscope.records.table import Align, Table
from creditscope.report.labels import Named, Names
from creditscope.report.text import ADVISORY_TONES, SYMBOLS, TONES, VERDICT_SYMBOLS


@dataclass(frozen=True)
class Chip:
    """One check on a card.

    Args:
        name: The check.
        ruling: Its outcome.
        symbol: The outcome as a sign.
        seeds: On how many of how many seeds, where not on all.
    """

    name: str
    ruling: str
    symbol: str
    seeds: str


@dataclass(frozen=True)
class MatrixRow:
    """A claim in the verdict matrix.

    Args:
        index: Of its cell on the page.
        label: The method, with the letter of its experiment where there are several.
        verdict: In words.
        symbol: The verdict as a sign.
        accuracy: Mean over seeds.
        chips: Every check of the page, in the order of the columns; None where it was not asked.
    """

    index: int
    label: str
    verdict: str
    symbol: str
    accuracy: str
    chips: tuple[Chip | None, ...]


@dataclass(frozen=True)
class Card:
    """A method and its verdict.

    Args:
        index: Of its cell on the page.
        label: The method.
        verdict: In words.
        symbol: The verdict as a sign.
        accuracy: Mean and standard deviation over seeds.
        gamma: The aggregate cosine, as papers give it.
        opponent: What decided its depth; empty where nothing did.
        margin: By how much it beats that.
        seeds: How many, how far.
        remarks: What belongs on the line of the verdict.
        chips: The required checks that apply to some claim of the page.
        reasons: Why, each in one clause.
        settles: What would settle what is open.
    """

    index: int
    label: str
    verdict: str
    symbol: str
    accuracy: str
    gamma: str
    opponent: str
    margin: str
    seeds: str
    remarks: tuple[str, ...]
    chips: tuple[Chip, ...]
    reasons: tuple[str, ...]
    settles: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """What a check says of one method.

    Args:
        index: Of its cell on the page.
        label: The method.
        ruling: The outcome.
        symbol: As a sign.
        text: In words.
        settles: The measurement that would settle it; None when nothing is open.
    """

    index: int
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
        text: Its question, how to read it, and advice.
        required: Whether it counts in the verdict.
        plot: Whether it has a plot.
        numbers: The table.
        readings: Method by method.
        fires: Whether the advice is needed.
        extra: A further table, of the check's own.
    """

    name: str
    text: CheckText
    required: bool
    plot: bool
    numbers: Table
    readings: tuple[Reading, ...]
    fires: bool
    extra: Table | None = None

    @property
    def tones(self) -> Mapping[str, str]:
        """The colour of each outcome: one that does not count never wears red."""
        return TONES if self.required else ADVISORY_TONES


def cards(names: Names) -> tuple[tuple[str, tuple[Card, ...]], ...]:
    """The verdict cards, by experiment.

    Args:
        names: The cells.
    """
    found = []
    for index, group in enumerate(names.groups):
        mine = tuple(_card(named, names) for named in names.claims if named.group == index)
        if mine:
            found.append((group, mine))
    return tuple(found)


def matrix(names: Names) -> tuple[MatrixRow, ...]:
    """Every claim against every check of the page.

    Args:
        names: The cells.
    """
    rows = []
    for named in names.claims:
        judged = named.judged
        assert judged.verdict is not None
        found = {outcome.name: outcome for outcome in judged.outcomes}
        kind, mean = str(judged.verdict.kind), judged.accuracy["mean"]
        chips = tuple(_chip(found[check.name]) if check.name in found else None for check in names.checks)
        accuracy = "–" if mean is None else f"{mean:.4f}"
        rows.append(MatrixRow(names.index(named), judged.cell.label, kind, VERDICT_SYMBOLS[kind], accuracy, chips))
    return tuple(rows)


def headline(names: Names, protocol: str = "") -> str:
    """How many methods stand, in one sentence.

    Args:
        names: The cells.
        protocol: What to say of the protocol.
    """
    kinds = [str(named.judged.verdict.kind) for named in names.claims if named.judged.verdict]
    parts = [f"{kinds.count(kind)} {kind}" for kind in VERDICT_SYMBOLS if kind in kinds]
    return f"{counted(len(kinds), 'claim')} judged{protocol}: {listed(parts)}."


def usual_pair(names: Names) -> str:
    """How often accuracy and Γ would have accepted what the checks walk back, in one sentence."""
    accepted = [n for n in names.claims if n.judged.decision.by_accuracy_and_gamma == "looks like learning"]
    back = [n for n in accepted if n.judged.verdict and str(n.judged.verdict.kind) == "walked back"]
    text = f"Accuracy above chance and Γ above 0 would have accepted {len(accepted)} of {len(names.claims)}"
    if not accepted:
        return f"{text}."
    if not back:
        return f"{text}; none of them is walked back here."
    shown = listed(named.judged.cell.label for named in back)
    return f"{text}; of these, {len(back)} {'is' if len(back) == 1 else 'are'} walked back here: {shown}."


def check_sections(names: Names) -> tuple[CheckSection, ...]:
    """One section a check, in the order of the protocol.

    Args:
        names: The cells.
    """
    return tuple(_section(check, check in names.audit.protocol.required, names) for check in names.checks)


def not_asked(names: Names) -> tuple[str, ...]:
    """The checks that apply to no claim of the page, each with why.

    Args:
        names: The cells.
    """
    shown = {check.name for check in names.checks}
    whys: dict[str, dict[str, None]] = {}
    for outcome in (o for named in names.claims for o in named.judged.outcomes if o.name not in shown):
        whys.setdefault(outcome.name, {})[outcome.reason] = None
    return tuple(f"{name}: {listed(reasons)}" for name, reasons in whys.items())


def _section(check: Check, required: bool, names: Names) -> CheckSection:
    found = [(named, o) for named in names.claims for o in named.judged.outcomes if o.name == check.name]
    readings = tuple(
        Reading(names.index(named), named.judged.cell.label, str(o.ruling), SYMBOLS[o.ruling], o.reason, o.settles)
        for named, o in found
    )
    return CheckSection(
        name=check.name,
        text=check.text,
        required=required,
        plot=check.plot is not None,
        numbers=_numbers(found),
        readings=readings,
        fires=any(outcome.ruling is Ruling.FIRES for _, outcome in found),
        extra=_extra(check, found),
    )


def _extra(check: Check, found: list[tuple[Named, Outcome]]) -> Table | None:
    try:
        return check.extra([(named.judged.cell.label, named.judged.cell, outcome) for named, outcome in found])
    except Exception as error:  # one check's table must not cost the page
        return Table(("note",), ((f"the check's own table failed: {said(error)}",),), title="Further numbers")


def _numbers(outcomes: list[tuple[Named, Outcome]]) -> Table:
    """What a check found; an empty column is left out."""
    columns: dict[str, Align] = {"method": "left", "outcome": "left", "seeds": "left", "value": "right"}
    columns |= {"interval": "right", "threshold": "right", "grade": "left", "fires since": "left", "per seed": "left"}
    rows = []
    for named, outcome in outcomes:
        check, interval = outcome.check, outcome.evidence.interval
        rows.append(
            (
                named.judged.cell.label,
                f"{SYMBOLS[outcome.ruling]} {outcome.ruling}",
                agreeing(outcome),
                _known(outcome.evidence.value, check),
                "" if interval is None else check.show_interval(*interval),
                check.show(check.threshold),
                "" if outcome.ruling is Ruling.NOT_APPLICABLE else str(outcome.evidence.grade),
                f"epoch {outcome.first_epoch}" if _dated(outcome) else "",
                ", ".join(f"{_seed(seed.seed)}: {_known(seed.evidence.value, check)}" for seed in outcome.per_seed),
            )
        )
    kept = [i for i, _ in enumerate(columns) if any(row[i] for row in rows)]
    names_of, aligns = list(columns), list(columns.values())
    picked = tuple(tuple(row[i] for i in kept) for row in rows)
    return Table(tuple(names_of[i] for i in kept), picked, tuple(aligns[i] for i in kept))


def _dated(outcome: Outcome) -> bool:
    return outcome.ruling is Ruling.FIRES and outcome.first_epoch is not None


def _seed(seed: int | None) -> str:
    return "?" if seed is None else str(seed)


def _known(value: float | None, check: Check) -> str:
    return "–" if value is None else check.show(value)


def _card(named: Named, names: Names) -> Card:
    judged, audit = named.judged, names.audit
    shown = asked(audit)
    assert judged.verdict is not None
    mean, sd, gamma = judged.accuracy["mean"], judged.accuracy["sd"], judged.decision.gamma
    depth = next((o for o in judged.outcomes if o.required and o.baseline and o.evidence.value is not None), None)
    accuracy = "not logged" if mean is None else f"{mean:.4f}" + ("" if sd is None else f" ± {sd:.4f}")
    return Card(
        index=names.index(named),
        label=named.label,
        verdict=str(judged.verdict.kind),
        symbol=VERDICT_SYMBOLS[str(judged.verdict.kind)],
        accuracy=accuracy,
        gamma="not logged" if gamma is None else f"{gamma:+.3f}".replace("-", "−"),
        opponent=(depth.baseline or {}).get("method") or "" if depth else "",
        margin=depth.check.show(depth.evidence.value) if depth else "",
        seeds=_seeds(named),
        remarks=tuple(remarks(judged, audit)),
        chips=tuple(_chip(outcome) for outcome in judged.outcomes if outcome.name in shown),
        reasons=tuple(reason.split("; ")[0] for reason in judged.verdict.reasons),
        settles=judged.verdict.settles,
    )


def _chip(outcome: Outcome) -> Chip:
    agree = outcome.agree
    some = "" if agree is None or agree[0] == agree[1] else agreeing(outcome)
    return Chip(outcome.name, str(outcome.ruling), SYMBOLS[outcome.ruling], some)


def _seeds(named: Named) -> str:
    cell = named.judged.cell
    last = {run.last.epoch for run in cell.runs if run.last is not None}
    reach = f", epoch {min(last)}" if len(last) == 1 else f", epochs {min(last)} to {max(last)}" if last else ""
    planned = cell.spec.epochs
    short = f" of {planned}" if planned is not None and last and max(last) < planned else ""
    return f"{counted(len(cell.runs), 'seed')}{reach}{short}"
