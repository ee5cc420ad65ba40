"""What was found when the ingredients of a recipe were changed one by one: tables, and an answer in words."""

from dataclasses import dataclass
from typing import Any

from creditscope.protocol.effects import MEASURES, Effect, Measure, Trial, corrected, effect, interaction
from creditscope.records.table import Table


@dataclass(frozen=True)
class Change:
    """One change of the recipe, or two together, and what it does.

    Args:
        names: Which switches.
        words: What was changed.
        trial: Its runs.
        effects: On each measure that was logged; of two changes, what they do beyond the sum of each alone.
    """

    names: tuple[str, ...]
    words: str
    trial: Trial
    effects: tuple[Effect, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return " + ".join(self.names)

    def on(self, measure: Measure) -> Effect | None:
        """Its effect on one measure; None where it was not measured.

        Args:
            measure: Which.
        """
        return next((each for each in self.effects if each.measure is measure), None)

    @property
    def size(self) -> float:
        """Its largest effect that matters, in units of what is relevant; 0 where none does."""
        return max((abs(e.margin.mean) / e.measure.relevant for e in self.effects if e.word == "matters"), default=0.0)


@dataclass(frozen=True)
class Explanation:
    """Which ingredients of a recipe cause what.

    Args:
        method: The method that is explained.
        base: Its runs.
        changes: Each switch flipped alone.
        pairs: Two of those that mattered, flipped together.
        screened: Switches that were looked at for fewer epochs only.
        refused: Switches that this recipe does not have, and why.
        notes: What else a reader must know.
    """

    method: str
    base: Trial
    changes: tuple[Change, ...]
    pairs: tuple[Change, ...] = ()
    screened: tuple[Change, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Those that were logged."""
        return tuple(m for m in MEASURES if any(c.on(m) for c in (*self.changes, *self.screened)))

    def causes(self, measure: Measure) -> tuple[Change, ...]:
        """The changes that matter for a measure, the largest first.

        Args:
            measure: Which.
        """
        telling = [(abs(e.margin.mean), c) for c in self.changes if (e := c.on(measure)) and e.word == "matters"]
        return tuple(change for _, change in sorted(telling, key=lambda pair: -pair[0]))

    @property
    def answer(self) -> tuple[str, ...]:
        """The answer in words, a line each."""
        lines = []
        for measure in self.measures:
            lines += self._about(measure)
        lines += [
            f"{change.words}: {change.trial.diverged} of {len(change.trial.runs)} runs diverge"
            for change in (*self.changes, *self.pairs)
            if change.trial.diverged
        ]
        return tuple(lines)

    def _about(self, measure: Measure) -> list[str]:
        base = _base(measure, self.base)
        head = f"{measure.label} {'not measured' if base is None else measure.shown(base, difference=False)}"
        lines = []
        for change in self.causes(measure):
            found = change.on(measure)
            assert found is not None
            since = "" if found.parted is None else f", apart from epoch {found.parted} on"
            lines.append(
                f"{head}: {change.words} alone brings {measure.shown(found.changed, difference=False)} "
                f"(effect {found.interval}, q = {_p(found.q)}{since})"
            )
        for pair in self.pairs:
            found = pair.on(measure)
            if found is not None and found.word == "matters":
                lines.append(
                    f"{head}: {pair.words} brings {measure.shown(found.changed, difference=False)}, where the two "
                    f"alone add up to {measure.shown(found.base, difference=False)} (interaction {found.interval}, "
                    f"q = {_p(found.q)})"
                )
        if not lines:
            lines.append(f"{head}: no change alone is shown to matter")
        for word in ("does not matter", "open"):
            named = [c.name for c in self.changes if (e := c.on(measure)) is not None and e.word == word]
            if named:
                lines.append(f"{head}: {word}: {', '.join(named)}")
        return lines

    def table(self) -> Table:
        """Every effect with its interval; ``*`` marks those that matter."""
        columns = ("switch", "change", *(m.label for m in self.measures), "apart from epoch")
        rows = []
        for kind, changes in (("", self.changes), ("interaction of ", self.pairs), ("screened: ", self.screened)):
            for change in sorted(changes, key=lambda c: -c.size):
                cells = [self._cell(change, measure) for measure in self.measures]
                parted = [e.parted for e in change.effects if e.parted is not None]
                words = change.words + (
                    f"\n{change.trial.diverged} of {len(change.trial.runs)} diverged" if change.trial.diverged else ""
                )
                rows.append((kind + change.name, words, *cells, str(min(parted)) if parted else "–"))
        return Table(columns, tuple(rows), title=f"What changes {self.method}: {len(self.base.runs)} seeds, paired")

    def _cell(self, change: Change, measure: Measure) -> str:
        found = change.on(measure)
        return "not measured" if found is None else found.interval + (" *" if found.word == "matters" else "")

    def to_text(self, width: int | None = None) -> str:
        """The answer, the table, what was refused, and notes.

        Args:
            width: Of the terminal; None: any.
        """
        parts = ["\n".join(self.answer), self.table().to_text(width), "\n".join(self._remarks())]
        return "\n\n".join(part for part in parts if part)

    def to_markdown(self) -> str:
        """The same in Markdown."""
        bullets = ["\n".join(f"- {line}" for line in lines) for lines in (self.answer, self._remarks())]
        return "\n\n".join(part for part in (bullets[0], self.table().to_markdown(), bullets[1]) if part)

    def to_latex(self) -> str:
        """The table for a paper."""
        return self.table().to_latex()

    def _remarks(self) -> list[str]:
        lines = [f"not a switch of this recipe: {name}: {why}" for name, why in self.refused]
        return [
            *lines,
            *self.notes,
            f"* matters: 5 % of what is marked in a column is expected to be false (Benjamini-Hochberg over "
            f"{len(self.changes)} changes), and the effect is larger than "
            + ", ".join(f"{m.shown(m.relevant)} of {m.label}" for m in self.measures),
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": self.method,
            "seeds": [run.spec.seed for run in self.base.runs],
            "base": {m.name: _base(m, self.base) for m in self.measures},
            "changes": [_plain(change) for change in self.changes],
            "pairs": [_plain(change) for change in self.pairs],
            "screened": [_plain(change) for change in self.screened],
            "refused": [{"switch": name, "why": why} for name, why in self.refused],
            "notes": list(self.notes),
            "answer": list(self.answer),
        }


def effects_of(trials: dict[str, tuple[str, Trial]], base: Trial) -> tuple[Change, ...]:
    """What each change does, corrected for how many there are, measure by measure.

    Args:
        trials: By the name of the switch: what was changed, and its runs.
        base: The runs without.
    """
    found = {(name, m.name): effect(m, trial, base) for name, (_, trial) in trials.items() for m in MEASURES}
    return _changes({(name,): (words, trial) for name, (words, trial) in trials.items()}, found)


def interactions_of(
    trials: dict[tuple[str, str], tuple[str, Trial]], alone: dict[str, Trial], base: Trial
) -> tuple[Change, ...]:
    """What pairs of changes do beyond the sum of each alone.

    Args:
        trials: By the names of two switches: what was changed, and its runs.
        alone: By the name of a switch, its runs.
        base: The runs with neither.
    """
    found = {
        (" + ".join(names), m.name): interaction(m, trial, alone[names[0]], alone[names[1]], base)
        for names, (_, trial) in trials.items()
        for m in MEASURES
    }
    return _changes({tuple(names): each for names, each in trials.items()}, found)


def _changes(
    trials: dict[tuple[str, ...], tuple[str, Trial]], found: dict[tuple[str, str], Effect | None]
) -> tuple[Change, ...]:
    by_name: dict[str, list[Effect]] = {" + ".join(names): [] for names in trials}
    for measure in MEASURES:
        named = [(n, e) for n in by_name if (e := found[n, measure.name]) is not None]
        for (name, _), each in zip(named, corrected([e for _, e in named]), strict=True):
            by_name[name].append(each)
    return tuple(
        Change(names, words, trial, tuple(by_name[" + ".join(names)])) for names, (words, trial) in trials.items()
    )


def _base(measure: Measure, trial: Trial) -> float | None:
    side = measure.side(trial)
    return None if side is None else sum(side.accuracy) / len(side.accuracy)


def _plain(change: Change) -> dict[str, Any]:
    return {
        "switches": list(change.names),
        "change": change.words,
        "logs": [run.name for run in change.trial.runs],
        "diverged": change.trial.diverged,
        "effects": {each.measure.name: each.to_dict() for each in change.effects},
    }


def _p(q: float | None) -> str:
    return "not known" if q is None else f"{q:.2g}"
