"""What an audit discloses beside its verdicts: how many were judged, what chance would pass, what is missing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from creditscope.protocol.evidence import Ruling
from creditscope.protocol.facts import SMALLEST_RATIO
from creditscope.protocol.text import counted, listed, number
from creditscope.records.log import RunLog
from creditscope.records.spec import RunSpec
from creditscope.records.spec_parts import DataSpec

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit

_CUTS = {
    "model": "by the model itself",
    "given": "by its user",
    "found": "by creditscope, which searched for them",
    None: "in a way that the logs do not state",
}


@dataclass(frozen=True)
class Plan:
    """A declared plan held against the logs.

    Args:
        runs: How many runs it names.
        missing: Those without a log, in the order of the plan.
        unfinished: Those whose log did not come to its end.
    """

    runs: int
    missing: tuple[RunSpec, ...]
    unfinished: tuple[RunSpec, ...]

    @property
    def text(self) -> str:
        """In words."""
        if not self.missing and not self.unfinished:
            return f"every run of the plan ({self.runs}) is among the logs"
        parts = [f"missing {_named(self.missing)}"] if self.missing else []
        parts += [f"unfinished {_named(self.unfinished)}"] if self.unfinished else []
        return f"of the {self.runs} runs of the plan: {'; '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"runs": self.runs, "missing": _dicts(self.missing), "unfinished": _dicts(self.unfinished)}


def held_against(plan: Iterable[RunSpec], logs: Iterable[RunLog]) -> Plan:
    """Which runs of a plan have no log, or none that came to its end.

    A data set is told by its name: a plan does not know what its files hold, nor how its rates came about.

    Args:
        plan: The runs as planned.
        logs: The logs.
    """
    planned = list(dict.fromkeys(plan))
    finished: dict[tuple[str, int | None], bool] = {}
    for run in logs:
        key = _key(run.spec)
        finished[key] = finished.get(key, False) or run.finished
    keys = [_key(spec) for spec in planned]
    return Plan(
        len(planned),
        tuple(spec for spec, key in zip(planned, keys, strict=True) if key not in finished),
        tuple(spec for spec, key in zip(planned, keys, strict=True) if finished.get(key) is False),
    )


def disclosures(audit: "Audit") -> tuple[str, ...]:
    """What every format says beside the verdicts, a line each.

    Args:
        audit: The audit.
    """
    plan = "no plan was declared, so that runs left out cannot be told" if audit.plan is None else audit.plan.text
    part = (
        [f"these are {len(audit.claims)} of the {audit.chosen[1]} cells judged, chosen by {audit.chosen[0]}"]
        if audit.chosen
        else []
    )
    return (*part, *_by_chance(audit), *(changes(audit) or ["no threshold was changed"]), *_cuts(audit), plan)


def changes(audit: "Audit") -> list[str]:
    """The thresholds that were set, with what the protocol has, and what was assumed where logs are silent.

    Args:
        audit: The audit.
    """
    said = []
    if set_ := audit.protocol.overrides:
        usual = {check.name: type(check) for check in audit.protocol.checks}
        shown = (f"{name}={value:g} (was {usual[name].threshold:g})" for name, value in set_)
        said.append("thresholds set: " + ", ".join(shown))
    assume = audit.assume
    given = {
        "blocks": assume.blocks,
        "h0": assume.h0,
        "ratio": assume.ratio if assume.ratio != SMALLEST_RATIO else None,
    }
    if stated := [f"{name}={value:g}" for name, value in given.items() if value is not None]:
        said.append("assumed: " + ", ".join(stated))
    return said


def disclosed(audit: "Audit") -> dict[str, Any]:
    """The same for JSON.

    Args:
        audit: The audit.
    """
    return {
        "cells_judged": len(audit.claims),
        "passes_by_chance": {name: rate * cells for name, (rate, cells) in chance_passes(audit).items()},
        "blocks_cut": {str(how or "not stated"): cells for how, cells in _cut_counts(audit).items()},
        "plan": None if audit.plan is None else audit.plan.to_dict(),
    }


def chance_passes(audit: "Audit") -> dict[str, tuple[float, int]]:
    """By required check with an error rate: that rate at the threshold, and how many cells were asked.

    Args:
        audit: The audit.
    """
    decided = (Ruling.PASSES, Ruling.FIRES, Ruling.UNDECIDED)
    found = {}
    for check in audit.protocol.required:
        asked = sum(o.name == check.name and o.ruling in decided for cell in audit.claims for o in cell.outcomes)
        if check.by_chance and asked:
            found[check.name] = (check.by_chance, asked)
    return found


def _by_chance(audit: "Audit") -> list[str]:
    parts = [
        f"{number(rate * cells)} of {cells} by {name} ({number(100 * rate)} % each)"
        for name, (rate, cells) in chance_passes(audit).items()
    ]
    judged = counted(len(audit.claims), "cell")
    return [f"{judged} judged; at the threshold itself chance would pass {listed(parts)}"] if parts else []


def _cuts(audit: "Audit") -> list[str]:
    found = _cut_counts(audit)
    said = [f"{_CUTS.get(how, how)} ({counted(cells, 'cell')})" for how, cells in found.items()]
    return [f"cut into blocks {listed(said)}"] if found else []


def _cut_counts(audit: "Audit") -> dict[str | None, int]:
    """How many cells were cut how; a model that ships with the engine cuts itself."""
    counts: dict[str | None, int] = {}
    for judged in audit.claims:
        header = judged.cell.runs[0].header
        how = header.partition or ("model" if header.spec.origin == "engine" else None)
        counts[how] = counts.get(how, 0) + 1
    return counts


def _key(spec: RunSpec) -> tuple[str, int | None]:
    data = None if spec.data is None else DataSpec(name=spec.data.name)
    return spec.model_copy(update={"data": data, "classes": None, "tuned": None}).cell_key, spec.seed


def _named(specs: Sequence[RunSpec]) -> str:
    """Method by method, with the seeds."""
    by_method: dict[str, list[int | None]] = {}
    for spec in specs:
        by_method.setdefault(spec.method, []).append(spec.seed)
    return listed(
        f"{method} (seed{'s' if len(seeds) > 1 else ''} {listed(dict.fromkeys(seeds))})"
        for method, seeds in by_method.items()
    )


def _dicts(specs: Sequence[RunSpec]) -> list[dict[str, Any]]:
    return [{"method": spec.method, "seed": spec.seed, "model": spec.model} for spec in specs]
