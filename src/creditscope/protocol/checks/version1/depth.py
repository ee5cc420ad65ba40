"""The depth check: is the trained net better than its own twin with frozen blocks?"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, final

from creditscope.protocol.cells import Cell, accuracy_of, effectively_linear, mean_accuracy
from creditscope.protocol.check import Check, CheckPlot, Outcome
from creditscope.protocol.evidence import Evidence, Grade, History, Ruling, SeedOutcome
from creditscope.protocol.inference import (
    Estimate,
    image_standard_error,
    paired,
    seeds_needed_range,
    welch,
)
from creditscope.protocol.readings import curve_of, shares_of
from creditscope.protocol.text import counted, listed, number, span
from creditscope.records.log import RunLog
from creditscope.records.table import Table

PP = 100.0


@dataclass(frozen=True)
class Margins:
    """Accuracies of a cell and of its baseline, ready to be compared.

    Args:
        claims: Runs with their accuracy.
        baselines: The same for the baseline; empty for a bare number.
        notes: What was left out or assumed.
    """

    claims: tuple[tuple[RunLog, float], ...]
    baselines: tuple[tuple[RunLog, float], ...]
    notes: tuple[str, ...]

    @property
    def common(self) -> list[int]:
        """Seeds on both sides, each once."""
        ours = [run.spec.seed for run, _ in self.claims]
        theirs = [run.spec.seed for run, _ in self.baselines]
        return [seed for seed in ours if seed is not None and ours.count(seed) == theirs.count(seed) == 1]


class Depth(Check):
    """Fires when accuracy − matched frozen accuracy is below the margin, in percentage points."""

    name = "depth"
    unit = "pp"
    by_difference = True
    side = "below"
    threshold = 2.0
    keeps_rows = False
    title = "Depth"
    question = "Do the trained blocks beat the same net with its blocks frozen?"
    healthy = (
        "Each line is a run's accuracy less that of its frozen twin, in which the blocks stay as drawn. Below the "
        "margin the blocks add nothing that the embedding and the readout would not reach alone."
    )
    advice = (
        "Report the frozen twin with the accuracy. If the twin is as good, the claim is about a shallow net: "
        "say so, or find the block that destroys what the embedding gives."
    )
    plot = CheckPlot(("margin", "accuracy"), lines=("margin",), baselines=True)

    @final
    def judge(self, cell: Cell) -> Outcome:
        """Compare with the matched baseline, or with a bare number."""
        if cell.baseline is None:
            why = cell.why_no_baseline or "no baseline"
            return self.not_measured(f"not compared: {why}", _train_the_twin(cell))
        margins = _margins(cell)
        if not margins.claims:
            return self.not_measured("; ".join(margins.notes) or "no accuracy is logged", _train_the_twin(cell))
        if cell.baseline.runs and not margins.baselines:
            return self.not_measured("the baseline logs hold no accuracy", _train_the_twin(cell))
        estimate = self.estimate(cell, margins)
        grade = Grade.EXACT if cell.baseline.matched else Grade.PROXY
        evidence = self.evidence(estimate, grade)
        ruling = evidence.ruling(self.threshold, self.side)
        details = _details(cell, margins, estimate, self.threshold)
        return self.outcome(
            evidence,
            "; ".join(
                [
                    self._sentence(evidence, estimate, details),
                    *margins.notes,
                    *_comparison(cell, self.threshold, ruling),
                ]
            ),
            tuple(self._seed(cell, margins, run, accuracy, evidence) for run, accuracy in margins.claims),
            self._settles(cell, details, evidence),
            _baseline(cell),
            details,
        )

    def extra(self, judged: Sequence[tuple[str, Cell, Outcome]]) -> Table:
        """What each claim was compared with."""
        rows = []
        for label, cell, outcome in judged:
            if (base := outcome.baseline) is None:
                continue
            others = [other for other in base["beside"] if other["method"] != base["method"]]
            rows.append(
                (
                    label,
                    _fraction(mean_accuracy(cell.runs)),
                    base["method"] or "a bare number",
                    _fraction(base["accuracy"]),
                    "yes" if base["matched"] else "no",
                    ", ".join(f"{other['method']} {_fraction(other['accuracy'])}" for other in others) or "–",
                )
            )
        columns = ("method", "accuracy", "compared with", "its accuracy", "matched", "related")
        return Table(columns, tuple(rows), title="What each was compared with")

    @abstractmethod
    def estimate(self, cell: Cell, margins: Margins) -> Estimate:
        """The margin over seeds, in percentage points."""

    @abstractmethod
    def evidence(self, estimate: Estimate, grade: Grade) -> Evidence:
        """What the estimate is taken to prove."""

    def _sentence(self, evidence: Evidence, estimate: Estimate, details: dict[str, Any]) -> str:
        ruling = evidence.ruling(self.threshold, self.side)
        shown = f"margin {estimate.mean:+.2f} pp"
        if not math.isinf(estimate.low):
            shown += f", 95 % interval {span(estimate.low, estimate.high, '')} ({estimate.kind})"
        limit = f"{number(self.threshold)} pp"
        text = {
            Ruling.FIRES: f"{shown}, below {limit}",
            Ruling.PASSES: f"{shown}, at or above {limit}",
        }.get(ruling, f"{shown}, which leaves {limit} open")
        if ruling is Ruling.UNDECIDED and estimate.kind == "one seed":
            text += " (one seed is not enough)"
        if details.get("image_se") is not None:
            text += f"; ± {details['image_se']:.2f} pp standard error over {details['n_test']} test images"
        return text

    def _settles(self, cell: Cell, details: dict[str, Any], evidence: Evidence) -> str:
        if evidence.grade is not Grade.EXACT:
            return _train_the_twin(cell)
        needed = details.get("seeds_needed")
        if not needed or needed[0] is None:
            return "train at least 2 seeds of the run and of its frozen twin, the same seeds"
        most = "many more" if needed[1] is None else str(needed[1])
        return f"train about {needed[0]} to {most} seeds of the run and of its frozen twin"

    def _seed(self, cell: Cell, margins: Margins, run: RunLog, accuracy: float, whole: Evidence) -> SeedOutcome:
        """One run's margin as a point; its firing epoch counts only where the cell as a whole fires."""
        evidence = Evidence.point(PP * (accuracy - _opponent(cell, margins, run)), whole.grade)
        ruling = evidence.ruling(self.threshold, self.side)
        epoch = run.last.epoch if run.last else None
        fires = ruling is Ruling.FIRES and whole.ruling(self.threshold, self.side) is Ruling.FIRES
        since = self._since(margins, run) if fires else None
        history = History(first=epoch if fires and since is None else since)
        return SeedOutcome(run.spec.seed, run.name, epoch, ruling, evidence, history)

    def _since(self, margins: Margins, run: RunLog) -> int | None:
        """Start of the last stretch of epochs below the margin, each compared with the twin at the same epoch."""
        by_epoch: dict[int, list[float]] = {}
        for twin, _ in _twins(margins, run):
            for epoch, accuracy in curve_of(twin).accuracies.items():
                by_epoch.setdefault(epoch, []).append(accuracy)
        since = None
        for epoch, accuracy in reversed(curve_of(run).accuracies.items()):
            if epoch == 0 or epoch not in by_epoch:
                continue
            if PP * (accuracy - fmean(by_epoch[epoch])) >= self.threshold:
                break
            since = epoch
        return since


@final
class DepthPoint(Depth):
    """The published form: difference of seed means, a point estimate."""

    def estimate(self, cell: Cell, margins: Margins) -> Estimate:
        """Difference of the seed means."""
        mean = PP * (fmean(accuracy for _, accuracy in margins.claims) - _baseline_mean(cell, margins))
        return Estimate(mean, -math.inf, math.inf, None, len(margins.claims), "point")

    def evidence(self, estimate: Estimate, grade: Grade) -> Evidence:
        """The point itself."""
        return Evidence.point(estimate.mean, grade)


@final
class DepthInterval(Depth):
    """The standard form: a 95 % t interval over paired seeds must clear the margin."""

    def estimate(self, cell: Cell, margins: Margins) -> Estimate:
        """Paired on common seeds, Welch where there are fewer than two, against a constant for a bare number."""
        claims = [PP * accuracy for _, accuracy in margins.claims]
        if not margins.baselines:
            return paired([value - PP * _baseline_mean(cell, margins) for value in claims])
        common = margins.common
        if len(common) >= 2 or len(margins.claims) == len(margins.baselines) == len(common):
            ours = {run.spec.seed: accuracy for run, accuracy in margins.claims}
            theirs = {run.spec.seed: accuracy for run, accuracy in margins.baselines}
            return paired([PP * (ours[seed] - theirs[seed]) for seed in common])
        return welch(claims, [PP * accuracy for _, accuracy in margins.baselines])

    def evidence(self, estimate: Estimate, grade: Grade) -> Evidence:
        """The interval."""
        return Evidence(estimate.mean, estimate.low, estimate.high, grade)


def _margins(cell: Cell) -> Margins:
    """Accuracies on both sides. Unfinished runs never match: they are left out, by name."""
    assert cell.baseline is not None
    notes: list[str] = []
    runs = list(cell.runs)
    if cell.baseline.runs:
        unfinished = [run.name for run in runs if not run.finished]
        runs = [run for run in runs if run.finished]
        if unfinished:
            notes.append(f"unfinished, not compared: {listed(unfinished)}")
    else:
        ended_early = [run.name for run in runs if not run.finished]
        if ended_early:
            notes.append(f"unfinished, judged at the last logged epoch: {listed(ended_early)}")
    claims = tuple((run, accuracy) for run in runs if (accuracy := accuracy_of(run)) is not None)
    silent = [run.name for run in runs if accuracy_of(run) is None]
    if silent:
        notes.append(f"no accuracy logged: {listed(silent)}")
    theirs = tuple((run, value) for run in cell.baseline.runs if (value := accuracy_of(run)) is not None)
    margins = Margins(claims, theirs, ())
    left = [str(run.spec.seed) for run, _ in (*claims, *theirs) if run.spec.seed not in margins.common]
    if theirs and len(margins.common) >= 2 and left:
        notes.append(f"seeds on one side only, left out of the pairs: {listed(dict.fromkeys(left))}")
    return Margins(claims, theirs, tuple(notes))


def _baseline_mean(cell: Cell, margins: Margins) -> float:
    assert cell.baseline is not None
    if cell.baseline.accuracy is not None:
        return cell.baseline.accuracy
    return fmean(accuracy for _, accuracy in margins.baselines)


def _twins(margins: Margins, run: RunLog) -> list[tuple[RunLog, float]]:
    """The baseline run of the same seed, or all of them when the seed has none."""
    if run.spec.seed in margins.common:
        return [twin for twin in margins.baselines if twin[0].spec.seed == run.spec.seed]
    return list(margins.baselines)


def _opponent(cell: Cell, margins: Margins, run: RunLog) -> float:
    twins = _twins(margins, run)
    return fmean(accuracy for _, accuracy in twins) if twins else _baseline_mean(cell, margins)


def _details(cell: Cell, margins: Margins, estimate: Estimate, threshold: float) -> dict[str, Any]:
    is_open = estimate.low < threshold <= estimate.high
    needed = seeds_needed_range(estimate, threshold) if is_open else None
    frozen, bp, bp_frozen = (
        _baseline_mean(cell, margins),
        mean_accuracy(cell.related.bp),
        mean_accuracy(cell.related.bp_frozen),
    )
    ours = fmean(accuracy for _, accuracy in margins.claims)
    span_bp = None if bp is None or bp_frozen is None else bp - bp_frozen
    return {
        "estimator": estimate.kind,
        "seeds": estimate.n,
        "sd": estimate.sd,
        "seeds_needed": None if needed is None else list(needed),
        **_image_error(margins),
        "normalised_margin": (ours - frozen) / span_bp if span_bp and span_bp > 0 else None,
    }


def _image_error(margins: Margins) -> dict[str, Any]:
    """Paired standard error over test images, in pp; absent unless both sides logged the same images."""
    sides = [[(run, shares_of(run)) for run, _ in side] for side in (margins.claims, margins.baselines)]
    sizes = {None if shares is None else len(shares) for side in sides for _, shares in side}
    tests = {run.spec.data.hash_test if run.spec.data else None for side in sides for run, _ in side}
    if not margins.baselines or len(sizes) != 1 or None in sizes or len(tests) != 1:
        return {"image_se": None, "n_test": None}
    n = sizes.pop()
    common = margins.common
    pairs = len(common) >= 2 or len(common) == len(margins.claims)
    used = [[shares for run, shares in side if shares is not None and _use(run, common, pairs)] for side in sides]
    return {"image_se": PP * image_standard_error(*used), "n_test": n}


def _use(run: RunLog, common: list[int], pairs: bool) -> bool:
    return not pairs or run.spec.seed in common


def _baseline(cell: Cell) -> dict[str, Any]:
    assert cell.baseline is not None
    related = cell.related
    return {
        "method": cell.baseline.method,
        "accuracy": cell.baseline.mean,
        "matched": cell.baseline.matched,
        "seeds": [run.spec.seed for run in cell.baseline.runs],
        "logs": [run.name for run in cell.baseline.runs],
        "not_stated": list(cell.baseline.unknown),
        "effectively_linear": effectively_linear(cell.baseline.runs),
        "beside": [
            {"method": runs[0].spec.method, "accuracy": mean_accuracy(runs), "seeds": [run.spec.seed for run in runs]}
            for runs in (related.bp_frozen, related.readout)
            if runs
        ],
    }


def _fraction(value: float | None) -> str:
    return "not logged" if value is None else f"{value:.4f}"


def _comparison(cell: Cell, threshold: float, ruling: Ruling) -> list[str]:
    """What the baselines say in words."""
    assert cell.baseline is not None
    said: list[str] = []
    if cell.baseline.accuracy is not None:
        said.append(f"unmatched: the baseline is a bare number, {cell.baseline.accuracy:.4g}")
    elif cell.baseline.unknown:
        said.append(f"unmatched: the logs do not state {listed(cell.baseline.unknown)}")
    if effectively_linear(cell.baseline.runs):
        said.append("the baseline is effectively linear (‖f‖/‖h‖ < 1 %)")
    ours, shallow = mean_accuracy(cell.runs), mean_accuracy(cell.related.bp_frozen)
    if cell.spec.rule == "bp" or ours is None or shallow is None:
        return said
    if ruling is Ruling.PASSES and PP * (ours - shallow) < threshold:
        said.append("better than its own frozen twin, not better than a shallow net trained by backprop")
    said.append(f"bp@frozen reaches {shallow:.4g} ({counted(len(cell.related.bp_frozen), 'seed')})")
    return said


def _train_the_twin(cell: Cell) -> str:
    spec = cell.spec
    # Frozen blocks have no branch for a local rule to keep small, so the twin of a penalised run needs no penalty.
    penalty = (spec.penalty or 0.0) if cell.runs[0].header.card.penalty == "global" else 0.0
    twin = replace(spec.as_method, penalty=penalty, train_last=0, train_embedding=True)
    return f"train {twin} with the same recipe and seeds (2 or more), and pass its logs"
