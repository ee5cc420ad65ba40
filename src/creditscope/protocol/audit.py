"""Judge a set of logs under a protocol."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from creditscope.errors import BadInput, argument
from creditscope.protocol.accuracies import chance
from creditscope.protocol.cells import Cell, accuracy_of
from creditscope.protocol.check import Check, Outcome, advisory
from creditscope.protocol.decisions import Decision, balanced_accuracy, decide
from creditscope.protocol.disclosure import Plan, disclosed, held_against
from creditscope.protocol.evidence import History
from creditscope.protocol.facts import Assumptions
from creditscope.protocol.matching import build_cells
from creditscope.protocol.present import Section, caption, render, sections, verdict_table
from creditscope.protocol.presets import Protocol, protocol_named
from creditscope.protocol.readings import Reader, answers_of
from creditscope.protocol.sensitivity import Stays, stays
from creditscope.protocol.timeline import RunTimeline, pooled_history, timelines
from creditscope.protocol.verdict import Verdict, VerdictKind, verdict
from creditscope.records.load import Loaded, Reduce, Skipped, load_logs, without_collection
from creditscope.records.log import RunLog
from creditscope.records.select import Selection
from creditscope.records.spec import RunSpec

Logs = Loaded | RunLog | str | Path | Iterable[RunLog | str | Path]


@dataclass(frozen=True)
class JudgedCell:
    """A cell with what the checks say of it; a baseline cell has no outcomes and no verdict.

    Args:
        cell: The runs.
        outcomes: One per check of the protocol.
        verdict: None for a baseline.
    """

    cell: Cell
    outcomes: tuple[Outcome, ...] = ()
    verdict: Verdict | None = None

    @cached_property
    def stays(self) -> tuple[Stays, ...]:
        """Where each threshold may lie without changing outcome or verdict."""
        return stays(self.outcomes)

    @cached_property
    def timelines(self) -> tuple[RunTimeline, ...]:
        """When each run fired, and what an alert would have saved."""
        return timelines(self.cell, self.outcomes)

    @property
    def pooled_history(self) -> dict[str, History]:
        """When the checks that judge all seeds together fired."""
        return pooled_history(self.outcomes)

    @cached_property
    def decision(self) -> Decision:
        """What the usual numbers say."""
        return decide(self.cell)

    @property
    def accuracy(self) -> dict[str, Any]:
        """Mean and standard deviation over seeds, fractions, at the last logged epoch."""
        known = [value for run in self.cell.runs if (value := accuracy_of(run)) is not None]
        return {
            "mean": fmean(known) if known else None,
            "sd": stdev(known) if len(known) > 1 else None,
            "per_seed": [accuracy_of(run) for run in self.cell.runs],
            "balanced": balanced_accuracy(self.cell),
            "chance": chance(self.cell.spec),
        }

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON entry of a cell."""
        cell, spec = self.cell, self.cell.spec
        return {
            "method": cell.method,
            "label": cell.label,
            "role": cell.role,
            "seeds": list(cell.seeds),
            "verdict": str(self.verdict.kind) if self.verdict else None,
            "reasons": list(self.verdict.reasons) if self.verdict else [],
            "settles": list(self.verdict.settles) if self.verdict else [],
            "disagrees": list(self.verdict.disagrees) if self.verdict else [],
            "checks": [outcome.to_dict() for outcome in self.outcomes],
            "stays": [{"check": s.check, "outcome": list(s.outcome), "verdict": list(s.verdict)} for s in self.stays],
            "timeline": [run.to_dict() for run in self.timelines] if self.verdict else [],
            "pooled_timeline": {name: history.first for name, history in self.pooled_history.items()},
            "decision": self.decision.to_dict() if self.verdict else None,
            "accuracy": self.accuracy,
            "epochs": [run.last.epoch if run.last else None for run in cell.runs],
            "finished": [run.finished for run in cell.runs],
            "logs": [run.name for run in cell.runs],
            "problems": [f"{run.name}: {problem}" for run in cell.runs for problem in run.problems],
            "model": spec.model,
            "depth": spec.depth,
            "data": spec.data.name if spec.data else None,
            "origin": spec.origin,
        }


@dataclass(frozen=True)
class Audit:
    """The result of judging logs.

    Args:
        protocol: Under which protocol.
        cells: Claims first, then baselines.
        skipped: Files that could not be read.
        assume: What was assumed where logs are silent.
        plan: A declared plan held against the logs; None when none was declared.
        chosen: Which of the judged cells these are, and of how many; None: all.
    """

    protocol: Protocol
    cells: tuple[JudgedCell, ...]
    skipped: tuple[Skipped, ...] = ()
    assume: Assumptions = field(default_factory=Assumptions)
    plan: Plan | None = None
    chosen: tuple[str, int] | None = None

    def only(self, selection: Selection) -> "Audit":
        """The same verdicts, of the wanted methods alone, with the baselines that match them.

        Args:
            selection: The methods.
        """
        claims = [cell for cell in self.claims if selection.is_of_method(cell.cell.spec)]
        if not claims:
            raise BadInput(f"nothing to judge: no trained run is of {selection.text}, only baselines")
        keys = {cell.cell.spec.match_key for cell in claims}
        rest = [cell for cell in self.cells if cell.verdict is None]
        kept = [c for c in rest if c.cell.spec.match_key in keys or selection.is_of_method(c.cell.spec)]
        return replace(self, cells=(*claims, *kept), chosen=(selection.text, len(self.claims)))

    def against(self, plan: Iterable[RunSpec]) -> "Audit":
        """The same audit, which names the runs of a declared plan that have no log.

        Args:
            plan: The runs as planned, such as ``specs`` gives them.
        """
        return replace(self, plan=held_against(plan, self.logs))

    @property
    def claims(self) -> tuple[JudgedCell, ...]:
        """The cells that were judged."""
        return tuple(cell for cell in self.cells if cell.verdict is not None)

    @property
    def by_kind(self) -> dict[str, tuple[JudgedCell, ...]]:
        """The claims of each verdict: trustworthy, walked back, incomplete."""
        return {
            str(k): tuple(c for c in self.claims if c.verdict is not None and c.verdict.kind is k) for k in VerdictKind
        }

    @property
    def walked_back(self) -> tuple[JudgedCell, ...]:
        """The claims that do not stand."""
        return self.by_kind[VerdictKind.WALKED_BACK]

    @property
    def incomplete(self) -> tuple[JudgedCell, ...]:
        """The claims of which something is open."""
        return self.by_kind[VerdictKind.INCOMPLETE]

    @property
    def logs(self) -> tuple[RunLog, ...]:
        """Every run, claims and baselines, to be judged together with others."""
        return tuple(run for cell in self.cells for run in cell.cell.runs)

    def to_text(self, width: int | None = 100) -> str:
        """Verdict table, reasons, what would settle what is open, runs and timeline, for a terminal.

        Args:
            width: Columns of the terminal; None never wraps.
        """
        return render(sections(self), "table", width)

    def to_markdown(self) -> str:
        """The same in Markdown."""
        return render(sections(self), "md")

    def to_latex(self) -> str:
        """The verdict table alone, with booktabs rules."""
        return render([Section(caption(self), verdict_table(self))], "latex")

    def _repr_html_(self) -> str:
        return verdict_table(self).to_html()

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON shape."""
        return {
            **self.protocol.to_dict(),
            "assumed": {"blocks": self.assume.blocks, "h0": self.assume.h0, "ratio": self.assume.ratio},
            **disclosed(self),
            **({"chosen": {"by": self.chosen[0], "of": self.chosen[1]}} if self.chosen else {}),
            "cells": [cell.to_dict() for cell in self.cells],
            "skipped": [{"file": skipped.file, "why": skipped.why} for skipped in self.skipped],
        }


def audit(
    logs: Logs,
    protocol: str | Protocol = "standard",
    baseline: float | Logs | None = None,
    thresholds: Mapping[str, float] | None = None,
    assume: Mapping[str, float] | None = None,
    keep_rows: bool = True,
    select: Selection | None = None,
) -> Audit:
    """Judge runs: group them into cells, find each claim's matched baseline, apply every check, give a verdict.

    Args:
        logs: Run logs, or paths of files and folders that hold them.
        protocol: ``standard``, ``published``, or a ``Protocol``, such as one with checks of your own.
        baseline: The accuracy of a frozen-blocks baseline (a fraction), or its logs; None searches among ``logs``.
        thresholds: Thresholds of one's own, by check name.
        assume: ``blocks``, ``h0`` or ``ratio`` for logs that do not state them.
        keep_rows: Whether the runs of the audit keep their rows, which a report draws. Without them an audit of
            thousands of files takes little memory. They stay where a check of the protocol looks at all of them.
        select: Which runs: their settings choose what is read; their methods choose which verdicts are kept, after all
            were judged, so that no claim loses what it is compared with.
    """
    chosen = protocol_named(protocol, thresholds)
    assumed = Assumptions.of(assume or {})

    keep_rows = keep_rows or any(check.keeps_rows for check in chosen.checks)
    with without_collection():
        reduce = None if keep_rows else Reader(chosen.checks, assumed).read
        loaded = _collect(logs, reduce)
        if not select:
            return _audit(loaded, chosen, baseline, assumed, reduce)
        return _audit(select.in_setting(loaded), chosen, baseline, assumed, reduce).only(select)


def _audit(
    loaded: Loaded, chosen: Protocol, baseline: float | Logs | None, assumed: Assumptions, reduce: Reduce | None
) -> Audit:
    skipped = loaded.skipped
    against: float | Sequence[RunLog] | None
    if baseline is None or isinstance(baseline, (int, float)):
        against = _fraction(baseline)
    else:
        given = _collect(baseline, reduce)
        against, skipped = given.logs, (*skipped, *given.skipped)
        if not against:
            raise BadInput(argument("baseline"), f" holds no readable log{_first(given.skipped)}")
    cells = build_cells(loaded.logs, against, assumed)
    if not any(cell.role == "claim" for cell in cells):
        what = "only baselines (runs with frozen blocks)" if cells else "no readable log"
        raise BadInput(f"nothing to judge: wanted logs of at least one trained run, got {what}{_first(skipped)}")
    return Audit(chosen, tuple(_judge(cell, chosen) for cell in cells), skipped, assumed)


def _judge(cell: Cell, protocol: Protocol) -> JudgedCell:
    if cell.role == "baseline":
        return JudgedCell(cell)
    outcomes = [_ask(check, cell, protocol) for check in protocol.required]
    outcomes += [advisory(_ask(check, cell, protocol)) for check in protocol.advisory]
    return JudgedCell(cell, tuple(outcomes), verdict(outcomes))


def _ask(check: Check, cell: Cell, protocol: Protocol) -> Outcome:
    if cell.family in protocol.families.get(check.name, (cell.family,)):
        return check.judge_safely(cell)
    return check.not_applicable(f"not asked of a rule of the {cell.family} family")


def _collect(logs: Logs, reduce: Reduce | None) -> Loaded:
    """The logs that are loaded already, then those of files."""
    if isinstance(logs, Loaded):
        return _counted_once(logs)
    if isinstance(logs, RunLog):
        return Loaded((logs,))
    items = [logs] if isinstance(logs, (str, Path)) else list(logs)
    held = [item for item in items if isinstance(item, RunLog)]
    paths = [item for item in items if not isinstance(item, RunLog)]
    return _counted_once(load_logs(paths, reduce, held))


def _counted_once(loaded: Loaded) -> Loaded:
    """A run that ends as another seed of its cell does, to the last digit, is that run: its seed changed nothing."""
    first: dict[Any, RunLog] = {}
    copies = []
    for run in loaded.logs:
        known = first.setdefault(_ends_as(run), run)
        if known is not run:
            why = f"ends as {known.name} does, to the last digit: its seed changed nothing, and it is counted once"
            copies.append((run, Skipped(run.name, why)))
    left_out = {id(run) for run, _ in copies}
    logs = tuple(run for run in loaded.logs if id(run) not in left_out)
    return Loaded(logs, (*loaded.skipped, *(skipped for _, skipped in copies)))


def _ends_as(run: RunLog) -> Any:
    """What no two trained nets share: norms of states and gradients, accuracy, images; else the run itself."""
    row = run.last
    if row is None:
        return id(run)
    states = [each.median for each in (row.hidden, row.reference) if each is not None]
    norms = (*(value for each in states for value in each), *(row.growth or ()))
    if not norms or None in norms:
        return id(run)
    return run.spec.cell_key, row.epoch, norms, accuracy_of(run), answers_of(run)


def _fraction(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise BadInput(f"a baseline accuracy is a fraction in [0, 1], got {value:g}; write e.g. 0.349 for 34.9 %")
    return value


def _first(skipped: Sequence[Skipped]) -> str:
    return f" ({skipped[0].file}: {skipped[0].why})" if skipped else "; give files or folders that hold run logs"
