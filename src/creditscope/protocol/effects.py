"""What a change of the recipe does: paired differences of runs on what was measured, each with its interval and p."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from scipy import optimize, stats

from creditscope.protocol.accuracies import side_of
from creditscope.protocol.facts import diverged_at
from creditscope.protocol.margins import Margin, Side, common_seeds, margin
from creditscope.quantities.per_epoch import (
    ACCURACY,
    ERROR,
    GAIN,
    GAMMA_ACTING,
    GAMMA_DEEP,
    GAMMA_PUBLISHED,
    GAMMA_WORST,
    GROWTH_MAX,
    HIDDEN,
    REFERENCE,
    STILLEST,
    TEST_LOSS,
    TRAIN_LOSS,
)
from creditscope.quantities.quantity import EpochQuantity
from creditscope.records.log import RunLog

LEVEL = 0.05


class Trial(NamedTuple):
    """The runs of one recipe, one a seed, and those of its frozen twin.

    Args:
        runs: The runs.
        frozen: The same with frozen blocks; empty where none was trained.
    """

    runs: tuple[RunLog, ...]
    frozen: tuple[RunLog, ...] = ()

    @property
    def diverged(self) -> int:
        """How many of the runs diverged."""
        return sum(diverged(run) for run in self.runs)


@dataclass(frozen=True)
class Measure:
    """Something a recipe changes.

    Args:
        name: Its name.
        label: In words.
        unit: ``%`` and ``pp``: a fraction, whose differences are percentage points; ``×``: a positive number compared
            as a ratio; else as it is.
        relevant: The smallest difference that anybody would care for, in the scale in which it is compared.
        side: Its values over the seeds of a trial; None where it was not measured.
        series: What is logged of it after every epoch; None where nothing is.
    """

    name: str
    label: str
    unit: str
    relevant: float
    side: Callable[[Trial], Side | None]
    series: EpochQuantity | None = None

    def scale(self, value: float | None) -> float | None:
        """A value in the scale in which it is compared; None where it has none there."""
        if value is None or not math.isfinite(value) or (self.unit == "×" and value <= 0):
            return None
        return math.log(value) if self.unit == "×" else value

    def shown(self, value: float, difference: bool = True) -> str:
        """A value of that scale in words.

        Args:
            value: The value.
            difference: Whether it is a difference of two.
        """
        if math.isinf(value):
            return "∞" if value > 0 else ("0" if self.unit == "×" else "−∞")
        if self.unit == "×":
            return f"{math.exp(value):.3g}{'×' if difference else ''}"
        if not self.unit:
            return f"{value:+.3f}" if difference else f"{value:.3f}"
        if difference or self.unit == "pp":
            return f"{100 * value:+.2f} pp"
        return f"{100 * value:.2f} %"


def diverged(run: RunLog) -> bool:
    """Whether a run ended as diverged, or logged a norm that is not finite.

    Args:
        run: The run.
    """
    return (run.end is not None and run.end.status == "diverged") or any(map(diverged_at, run.epochs))


def _measured(quantity: EpochQuantity, unit: str) -> Callable[[Trial], Side | None]:
    def side(trial: Trial) -> Side | None:
        found = {}
        for run in trial.runs:
            value = None if diverged(run) else quantity.last(run)
            if value is not None and math.isfinite(value) and (unit != "×" or value > 0):
                found[run.spec.seed] = math.log(value) if unit == "×" else value
        return Side(tuple(found.values()), tuple(found), variance=0.0) if found else None

    return side


def _accuracy(runs: Sequence[RunLog]) -> Side | None:
    found = side_of(runs) if runs else None
    return None if found is None else found[1]


def _margin(trial: Trial) -> Side | None:
    ours, theirs = _accuracy(trial.runs), _accuracy(trial.frozen)
    return None if ours is None or theirs is None else minus(ours, theirs)


MEASURES = (
    Measure("accuracy", "test accuracy", "%", 0.01, lambda trial: _accuracy(trial.runs), ACCURACY),
    Measure("growth", "largest growth of a block", "×", math.log(1.25), _measured(GROWTH_MAX, "×"), GROWTH_MAX),
    Measure("gain", "gain at the last state", "×", math.log(1.25), _measured(GAIN, "×"), GAIN),
    Measure("deep cosine", "cosine of the deep blocks", "", 0.05, _measured(GAMMA_DEEP, ""), GAMMA_DEEP),
    Measure("depth margin", "margin over the frozen twin", "pp", 0.01, _margin),
)

# What a comparison of two sets of runs adds: nobody has said which difference of these is worth caring for.
MORE = tuple(
    Measure(quantity.name, quantity.label, unit, 0.0, _measured(quantity, unit), quantity)
    for quantity, unit in (
        (TRAIN_LOSS, ""),
        (TEST_LOSS, ""),
        (ERROR, "×"),
        (HIDDEN, "×"),
        (REFERENCE, "×"),
        (GAMMA_ACTING, ""),
        (GAMMA_WORST, ""),
        (GAMMA_PUBLISHED, ""),
        (STILLEST, "×"),
    )
)


def minus(ours: Side, theirs: Side) -> Side | None:
    """Seed by seed and image by image, one side less another; None where no seed is common.

    Args:
        ours: One side.
        theirs: The other.
    """
    seeds = common_seeds(ours, theirs)
    if not seeds:
        return None
    a, b = ours.of(seeds), theirs.of(seeds)
    paired = a.score is not None and b.score is not None and a.score.shape == b.score.shape
    bounds = [side.variance for side in (a, b) if side.variance is not None]
    return Side(
        tuple(x - y for x, y in zip(a.accuracy, b.accuracy, strict=True)),
        tuple(seeds),
        a.score - b.score if paired and a.score is not None and b.score is not None else None,
        a.images,
        sum(bounds) if len(bounds) == 2 else None,
        a.strata,
    )


@dataclass(frozen=True)
class Effect:
    """What one change does to one measure.

    Args:
        measure: The measure.
        base: Its mean without the change.
        changed: Its mean with it.
        margin: The difference over seeds, test images joined in.
        p: Of no difference; None from one seed.
        q: The same, corrected for the number of changes looked at; None before that.
        parted: The first epoch from which on the two differ to the end; None where they do not, or it is not logged.
    """

    measure: Measure
    base: float
    changed: float
    margin: Margin
    p: float | None
    q: float | None = None
    parted: int | None = None

    @property
    def word(self) -> str:
        """``matters``, ``does not matter`` (the whole interval is too small to care for), or ``open``."""
        low, high = self.margin.low(), self.margin.high()
        if max(abs(low), abs(high)) < self.measure.relevant:
            return "does not matter"
        certain = self.q is not None and self.q < LEVEL
        return "matters" if certain and abs(self.margin.mean) >= self.measure.relevant else "open"

    @property
    def interval(self) -> str:
        """The difference with its 95 % interval."""
        if self.margin.seed_variance is None:
            return f"{self.measure.shown(self.margin.mean)} (one seed: no interval)"
        ends = ", ".join(self.measure.shown(end) for end in (self.margin.low(), self.margin.high()))
        return f"{self.measure.shown(self.margin.mean)} [{ends}]"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; of a ratio the logarithm."""
        low, high = (end if math.isfinite(end) else None for end in (self.margin.low(), self.margin.high()))
        return {
            "scale": "log" if self.measure.unit == "×" else "linear",
            "base": self.base,
            "changed": self.changed,
            "mean": self.margin.mean,
            "low": low,
            "high": high,
            "p": self.p,
            "q": self.q,
            "outcome": self.word,
            "apart_from_epoch": self.parted,
            "per_seed": list(self.margin.per_seed),
        }


def effect(measure: Measure, changed: Trial, base: Trial) -> Effect | None:
    """The difference that a change makes; None where a side was not measured.

    Args:
        measure: On what.
        changed: The runs with the change.
        base: The runs without.
    """
    ours, theirs = measure.side(changed), measure.side(base)
    if ours is None or theirs is None:
        return None
    found = margin(ours, theirs)
    parted = parting(measure, changed.runs, base.runs)
    return Effect(measure, _mean(theirs), _mean(ours), found, p_value(found), None, parted)


def interaction(measure: Measure, both: Trial, first: Trial, second: Trial, base: Trial) -> Effect | None:
    """What two changes do together beyond the sum of what each does alone; None where a side was not measured.

    Args:
        measure: On what.
        both: The runs with both changes.
        first: Those with the first alone.
        second: Those with the second alone.
        base: Those with neither.
    """
    sides = [measure.side(trial) for trial in (both, first, second, base)]
    if any(side is None for side in sides):
        return None
    b, f, s, n = (side for side in sides if side is not None)
    with_first, without = minus(b, f), minus(s, n)
    if with_first is None or without is None:
        return None
    found = margin(with_first, without)
    return Effect(measure, _mean(f) + _mean(s) - _mean(n), _mean(b), found, p_value(found))


def corrected(effects: Sequence[Effect]) -> list[Effect]:
    """The same effects with q, so that of those called telling at most 5 % are not (Benjamini and Hochberg 1995).

    Args:
        effects: Of every change that was looked at, on one measure.
    """
    known = [effect.p for effect in effects if effect.p is not None]
    q = iter(stats.false_discovery_control(known) if known else ())
    return [each if each.p is None else replace(each, q=float(next(q))) for each in effects]


def p_value(found: Margin) -> float | None:
    """The level at which the interval just reaches zero; None from one seed.

    Args:
        found: The difference.
    """
    if found.seed_variance is None:
        return None
    if found.mean == 0:
        return 1.0
    if found.image_variance == 0:
        if found.seed_variance == 0:
            return 0.0
        return float(2 * stats.t.sf(abs(found.mean) / math.sqrt(found.seed_variance), found.degrees))

    def gap(log_level: float) -> float:
        return found.half(math.exp(log_level)) - abs(found.mean)

    least = math.log(1e-12)  # below it quantiles lose their digits, and nobody can tell
    return math.exp(optimize.brentq(gap, least, math.log(1 - 1e-12))) if gap(least) > 0 else math.exp(least)


def parting(measure: Measure, changed: Sequence[RunLog], base: Sequence[RunLog]) -> int | None:
    """The first epoch from which on the paired 95 % interval excludes zero to the end; None where none does.

    Args:
        measure: On what.
        changed: The runs with the change.
        base: The runs without.
    """
    if measure.series is None:
        return None
    ours, theirs = (_series(measure, runs) for runs in (changed, base))
    seeds = sorted(set(ours) & set(theirs), key=str)
    if len(seeds) < 2:
        return None
    epochs = sorted(set.intersection(*(set(side[seed]) for side in (ours, theirs) for seed in seeds)))
    first = None
    for epoch in reversed(epochs):
        rows = [ours[seed][epoch] - theirs[seed][epoch] for seed in seeds]
        found = margin(Side(tuple(rows), tuple(seeds), variance=0.0), 0.0)
        if found.low() <= 0 <= found.high():
            break
        first = epoch
    return first


def _series(measure: Measure, runs: Sequence[RunLog]) -> dict[int | None, dict[int, float]]:
    assert measure.series is not None
    found: dict[int | None, dict[int, float]] = {}
    for run in runs:
        values = {row.epoch: measure.scale(measure.series.at(row, run.units)) for row in run.epochs}
        found[run.spec.seed] = {epoch: value for epoch, value in values.items() if value is not None}
    return found


def _mean(side: Side) -> float:
    return math.fsum(side.accuracy) / len(side.accuracy)
