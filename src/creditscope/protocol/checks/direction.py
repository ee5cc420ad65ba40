"""The direction check: does the credit of the deep blocks point along the gradient, on the method's seeds together?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, CheckPlot, Outcome
from creditscope.protocol.checks.block_credit import BlockCredit, epoch_row, last_probe, read_block, read_update
from creditscope.protocol.evidence import Evidence, Grade, History, Ruling, SeedOutcome
from creditscope.protocol.facts import RunFacts, finite
from creditscope.protocol.inference import holm, seeds_needed
from creditscope.protocol.pooling import NullDraws, Pool, block_spread, pool, reach
from creditscope.protocol.spill import Slot, Spill
from creditscope.protocol.text import counted, listed, number
from creditscope.quantities.expensive import GRADIENT
from creditscope.quantities.per_epoch import COSINE
from creditscope.records.log import RunLog, latest
from creditscope.records.rows import EpochRow, ProbeRow
from creditscope.records.table import Table

LEVEL = 0.01
# One seed in so many may lie clearly below the threshold where all together pass.
TOLERATED = 5
# Backprop is taken for backprop where its gradient was measured to be the true one to within this cosine.
BACKPROP = 0.9999
# Nobody trains more seeds than this for one method.
MOST_ADVISED = 1000
# Above this mean of the null, another feedback is no longer "no information".
SKIPS_CARRY = 0.1

Credits = dict[int, BlockCredit]


@dataclass(frozen=True)
class Reading:
    """One run as this check sees it.

    Args:
        credits: By epoch of each probe that asked, then by block; −1 is the embedding. The last one has the redraws.
        backprop: The smallest gradient cosine over the blocks that train, at the last probe; None where one is missing.
    """

    credits: dict[int, Credits]
    backprop: float | None

    @property
    def epoch(self) -> int | None:
        """Of the last probe; None when there is none."""
        return max(self.credits, default=None)


@dataclass(frozen=True)
class Tested:
    """The blocks that are tested, over the seeds of a cell.

    Args:
        blocks: Which; −1 is the embedding.
        exact: The blocks left out because their credit is exact by construction.
        cosines: (seeds, blocks).
        nulls: Of each seed.
        pool: The two summed up.
    """

    blocks: tuple[int, ...]
    exact: tuple[int, ...]
    cosines: NDArray[np.float64]
    nulls: tuple[NullDraws, ...]
    pool: Pool


@final
class Direction(Check):
    """Does the credit of the deep blocks point along the gradient? All seeds together; one alone decides nothing.

    Passes if every tested block's interval lies above the threshold, its pooled p is below .01, and at most one seed
    in five lies clearly below. Fires, from three seeds on, if the mean over blocks lies below it and no block's
    interval above it, or if some block points against the gradient. Everything else is open.
    """

    name = "direction"
    unit = "cosine"
    shows_unit = False
    by_difference = True
    side = "below"
    threshold = 0.05
    allowed = (-1.0, 1.0)
    title = "Direction"
    question = "Does the credit that reaches the deep blocks point where the gradient points?"
    healthy = (
        "Each line is the mean cosine over samples. The band holds about 98 % of what the same net shows with "
        "freshly drawn feedback: one cosine inside it does not tell alignment from chance. Exact-by-construction "
        "states lie at 1 and do not count."
    )
    advice = (
        "The deep blocks get next to nothing of the gradient's direction, or its opposite. Do not quote an aggregate "
        "Γ, which the first state can carry alone; report the cosine of each block with its null and its interval."
    )
    plot = CheckPlot(("cosine", "published", "gradient", "rho", "nudge", "descent"), "layers", lines=("cosine",))
    live = True
    in_a_row = 3
    pooled = True
    by_chance = 0.01
    keeps_rows = False

    def judge(self, cell: Cell) -> Outcome:
        """Test the deep blocks; where all are exact block 0 and the embedding; where nothing is left say so."""
        readings: tuple[Reading, ...] = cell.readings(self)
        update = cell.family == "update"
        lasts = [_last(reading, update) for reading in readings]
        blocks, exact = _choose(lasts)
        if not blocks:
            return self._nothing_left(cell, readings, exact, update)
        # What speaks for its cell: a seed that was not probed neither passes nor fires it.
        probed = [at for at, last in enumerate(lasts) if not _unknown(last, blocks)]
        silent = [run.name for at, run in enumerate(cell.runs) if at not in probed]
        if not probed:
            whys = dict.fromkeys(last[block].why for last in lasts for block in blocks if last[block].why)
            why = "; ".join(whys) or "the spread of the null is not logged"
            return self.not_measured(why, self._how_to_measure(cell, update))
        tested = _tested([lasts[at] for at in probed], blocks, exact)
        stale = _stale(cell, readings)
        evidence = self._evidence(tested, complete=not silent)
        if stale or tested.pool.normal:
            evidence = replace(evidence, grade=Grade.PROXY)
        if stale:  # what the last epoch would show is not known
            evidence = replace(evidence, passes_to=-math.inf, fires_to=-math.inf)
        ruling = evidence.ruling(self.threshold, self.side)
        notes = [*stale, *([f"not probed: {listed(silent)}"] if silent else [])]
        what = "cosine of the update" if update else "cosine"
        reason = "; ".join([self._sentence(tested, ruling, what, stale), *notes])
        return self.outcome(
            evidence,
            reason,
            tuple(self._seed(cell.runs[at], readings[at], tested.cosines[i]) for i, at in enumerate(probed)),
            self._settles(cell, tested, stale, silent),
            details={"blocks": self._block_dicts(tested), "gamma": tested.pool.gamma, "degrees": tested.pool.degrees},
            history=self._history([readings[at] for at in probed], blocks, ruling, update),
        )

    def read(self, run: RunLog, facts: RunFacts) -> Reading:
        """Credit and update of every block at every probe that asked."""
        last = last_probe(run)
        row_of = {row.epoch: row for row in run.epochs}
        asked = [probe for probe in run.probes if _asked(probe) or probe is last]
        credits = {probe.epoch: _credits(facts, probe, row_of.get(probe.epoch)) for probe in asked}
        if last is None:
            credits = {run.last.epoch if run.last else 0: _credits(facts, None, epoch_row(run, None))}
        return Reading(credits, _backprop(facts, run))

    def put_away(self, reading: Reading, spill: Spill) -> Reading:
        """The reading with its redraws on a spill: only a test over seeds needs them again."""

        def away(credit: BlockCredit) -> BlockCredit:
            if not isinstance(credit.draws, np.ndarray):
                return credit
            return replace(credit, draws=spill.put(credit.draws.tobytes()))

        return replace(
            reading,
            credits={
                epoch: {block: away(credit) for block, credit in credits.items()}
                for epoch, credits in reading.credits.items()
            },
        )

    def fires_on(self, facts: RunFacts, row: EpochRow | ProbeRow, epoch: EpochRow | None) -> bool | None:
        """Whether one live run's probe lies below what its own null can hide; the untrained net is not asked."""
        if not isinstance(row, ProbeRow) or not _asked(row):
            return None
        credits = _family(_credits(facts, row, epoch), facts.family == "update")
        blocks, exact = _choose([credits])
        if not blocks or _unknown(credits, blocks):
            return False
        tested = _tested([credits], blocks, exact)
        limit = 2 * math.sqrt(float(np.mean([null.sd.mean() ** 2 for null in tested.nulls])))
        worst = (tested.cosines + 3 * np.array([null.sd for null in tested.nulls])).min()
        return bool(tested.pool.gamma + limit < self.threshold or worst < 0)

    def alert(self, facts: RunFacts, row: EpochRow | ProbeRow, fires: bool) -> str:
        """How many probes it took."""
        return f"{self.in_a_row} probes in a row" if fires else "a probe no longer fires"

    def extra(self, judged: Sequence[tuple[str, Cell, Outcome]]) -> Table:
        """The tested blocks one by one."""
        rows: list[tuple[str, ...]] = []
        for label, _, outcome in judged:
            for block in outcome.details.get("blocks", []):
                if block["standing"] == "exact":
                    rows.append((label, block["name"], *"–––––", "exact by construction, not tested"))
                    continue
                numbers = (block[key] for key in ("cosine", "p", "p_holm", "null_mean"))
                mean, *rest = ("–" if value is None else number(value) for value in numbers)
                rows.append((label, block["name"], mean, _span(block["interval"]), *rest, block["why"] or ""))
        columns = ("method", "block", "cosine", "95 % interval", "p", "p (Holm)", "null mean", "note")
        return Table(columns, tuple(rows), title="Tested blocks, pooled over seeds")

    def _evidence(self, tested: Tested, complete: bool) -> Evidence:
        """Evidence in units of the threshold: what all blocks and all but a few seeds clear, and what none does."""
        found, seeds = tested.pool, len(tested.cosines)
        clear = seeds > 1 and complete and bool((found.p < LEVEL).all())
        tolerable = np.sort(reach(tested.cosines, tested.nulls))[seeds // TOLERATED]
        low = min(float(found.low.min()), float(tolerable)) if clear else -math.inf
        high = max(found.gamma_high, float(found.low.max()))
        if found.against.any():
            high = min(high, float(found.high[found.against].min()))
        return Evidence(float(found.mean.min()), low, high, Grade.EXACT)

    def _nothing_left(self, cell: Cell, readings: Sequence[Reading], exact: tuple[int, ...], update: bool) -> Outcome:
        if not exact:
            return self.not_measured("no block trains", settles="")
        own_code = cell.spec.origin != "engine"
        if cell.spec.rule != "bp" and not own_code:
            return self.not_measured("exact by construction at every block: proves nothing", settles="")
        cosines = [reading.backprop for reading in readings]
        known = [value for value in cosines if value is not None]
        if len(known) < len(cosines):
            why = "said to be backprop, which is verified by the gradient of every block, and that was not measured"
            return self.not_measured(why, "measure the gradient cosine of every block at the last epoch")
        if min(known) >= BACKPROP:
            return self.not_applicable(f"backprop: gradient cosine ≥ {BACKPROP} in every block, measured")
        return self.not_measured(
            f"said to be backprop, and the gradient cosine of some block is {number(min(known))}",
            "find out which gradient the code writes",
        )

    def _sentence(self, tested: Tested, ruling: Ruling, what: str, stale: list[str]) -> str:
        found, seeds = tested.pool, len(tested.cosines)
        limit, tail = number(self.threshold), [_exact_text(tested.exact)] if tested.exact else []
        below = (tested.cosines < self.threshold).any(axis=1).sum()
        k = f"{seeds - below} of {counted(seeds, 'seed')} above {limit} in every one"
        against = [block for block, bad in zip(tested.blocks, found.against, strict=True) if bad]
        if ruling is Ruling.PASSES:
            head = f"every tested block's {what} lies above {limit} with p < {LEVEL:g} ({k})"
        elif ruling is Ruling.FIRES and against:
            head = (
                f"{_blocks(against)} points against the gradient"
                if len(against) == 1
                else (f"{_blocks(against)} point against the gradient")
            )
        elif ruling is Ruling.FIRES:
            below_gamma = (tested.cosines.mean(axis=1) < self.threshold).sum()
            head = (
                f"the mean {what} over the tested blocks, {found.gamma:+.3f}, lies below {limit} "
                f"(on {below_gamma} of {counted(seeds, 'seed')}) and no block's interval above it"
            )
        else:
            head = f"{'the last epoch was not probed' if stale else self._why_open(tested)} ({k})"
        carried = "skips carry exact gradient" if what == "cosine" else "shuffled labels do as much"
        blocks = [self._block_text(tested, at, carried) for at in range(len(tested.blocks))]
        return "; ".join([head, ", ".join(blocks), *tail])

    def _why_open(self, tested: Tested) -> str:
        found, seeds, limit = tested.pool, len(tested.cosines), number(self.threshold)
        if seeds < 2:
            return "one seed cannot tell"
        names = np.array(tested.blocks)
        above, below = names[found.low > self.threshold], names[found.high < self.threshold]
        if len(above) and len(below):
            return f"{_blocks(above)} above {limit}, {_blocks(below)} below it: more seeds will not settle this"
        if len(above) == len(names) and (found.p >= LEVEL).any():
            return f"{_blocks(names[found.p >= LEVEL])} cannot be told from the null (p ≥ {LEVEL:g})"
        if len(above) == len(names):
            return f"seeds disagree: {(reach(tested.cosines, tested.nulls) < self.threshold).sum()} lie clearly below"
        open_ = names[(found.low <= self.threshold) & (found.high >= self.threshold)]
        return f"the interval of {_blocks(open_)} holds {limit}" if len(open_) else f"{_blocks(below)} below {limit}"

    def _block_text(self, tested: Tested, at: int, carried: str) -> str:
        found = tested.pool
        said = f"{_name(tested.blocks[at])}: {found.mean[at]:+.3f}"
        if math.isfinite(found.low[at]):
            said += f" [{found.low[at]:+.3f}, {found.high[at]:+.3f}]"
        said += f", p = {number(float(found.p[at]))}"
        mean = found.null_mean[at]
        return said + (f" (null mean {mean:+.2f}: {carried})" if mean > SKIPS_CARRY else "")

    def _settles(self, cell: Cell, tested: Tested, stale: list[str], silent: list[str]) -> str:
        """Advice that fits what was done already."""
        found, seeds = tested.pool, len(tested.cosines)
        if stale or silent:
            return "probe the last epoch of every seed"
        if found.normal:
            return "probe the last checkpoint again and keep the redraws of the null"
        if found.least_p >= LEVEL:
            return f"probe the last checkpoint with at least {math.ceil(1 / LEVEL)} redraws (probe.redraws)"
        if seeds < 3:
            return f"train at least {3 - seeds} more seeds"
        above, below = found.low > self.threshold, found.high < self.threshold
        if above.any() and below.any():
            return "nothing: these blocks differ; report them one by one"
        gaps, spread = np.abs(found.mean - self.threshold), block_spread(tested.cosines)
        each = [seeds_needed(float(gap), float(sd)) for gap, sd in zip(gaps, spread, strict=True)]
        if any(needed is None or needed > MOST_ADVISED for needed in each):
            return "more seeds than anybody trains: some block lies too near the threshold for how its seeds spread"
        return f"train more seeds, about {max(seeds + 1, *(needed or 0 for needed in each))} in all"

    def _how_to_measure(self, cell: Cell, update: bool) -> str:
        if update:
            return "probe the last checkpoint: the gradient cosine of every block with its null"
        if cell.runs[0].header.card.learns:
            return "probe the last checkpoint with the run's own feedback; train the @fixed-feedback control"
        return "probe the last checkpoint with the run's own feedback and its redraws"

    def _seed(self, run: RunLog, reading: Reading, cosines: NDArray[np.float64]) -> SeedOutcome:
        """One seed's weakest block; one seed alone decides nothing."""
        evidence = Evidence(float(cosines.min()), -math.inf, math.inf, Grade.EXACT)
        return SeedOutcome(run.spec.seed, run.name, reading.epoch, Ruling.UNDECIDED, evidence)

    def _block_dicts(self, tested: Tested) -> list[dict[str, Any]]:
        found = tested.pool
        adjusted = holm(found.p.tolist())
        rows = [
            {
                "block": block,
                "name": _name(block),
                "state": block + 1,
                "standing": "ok",
                "cosine": float(found.mean[at]),
                "interval": [float(v) if math.isfinite(v) else None for v in (found.low[at], found.high[at])],
                "per_seed": tested.cosines[:, at].tolist(),
                "p": float(found.p[at]),
                "p_holm": adjusted[at],
                "null_mean": float(found.null_mean[at]),
                "against": bool(found.against[at]),
                "why": "points against the gradient" if found.against[at] else None,
            }
            for at, block in enumerate(tested.blocks)
        ]
        exact = [{"block": b, "name": _name(b), "state": b + 1, "standing": "exact"} for b in tested.exact]
        return [*exact, *rows]

    def _history(self, readings: Sequence[Reading], blocks: tuple[int, ...], ruling: Ruling, update: bool) -> History:
        """When all seeds together fired, from the nulls' spread alone where redraws were not kept."""
        epochs = [epoch for epoch in readings[0].credits if all(epoch in reading.credits for reading in readings)]
        fired = []
        for epoch in sorted(epochs):
            credits = [_family(reading.credits[epoch], update) for reading in readings]
            if epoch and not any(_unknown(each, blocks) for each in credits):
                evidence = self._evidence(_tested(credits, blocks, ()), complete=True)
                fired.append((epoch, evidence.ruling(self.threshold, self.side) is Ruling.FIRES))
        found = History.of(fired)
        if ruling is Ruling.FIRES:
            return found if found.first is not None else History(first=max(epochs, default=None))
        return found if found.recovered is not None else History()


def _asked(probe: ProbeRow) -> bool:
    return probe.epoch != 0 and (probe.null is not None or probe.gradient_null is not None)


def _credits(facts: RunFacts, probe: ProbeRow | None, row: EpochRow | None) -> Credits:
    """Of every part that trains: credit at the states for rules that deliver any, else the update of each block."""
    if facts.family == "signal":
        parts = [block for block in range(-1, facts.blocks) if facts.trains(block)]
        return {block: _verified(read_block(facts, block, probe, row), facts, probe, row) for block in parts}
    return {block: read_update(facts, block, probe) for block in range(facts.blocks) if facts.trains(block)}


def _verified(credit: BlockCredit, facts: RunFacts, probe: ProbeRow | None, row: EpochRow | None) -> BlockCredit:
    """Credit that is said to be exact, or to be told from fresh feedback, where the log does not say otherwise."""
    block = credit.block
    if credit.standing == "exact":
        measured = [COSINE.at(row, facts.units, block + 1) if row is not None else None]
        measured += [GRADIENT.at(probe, facts.units, block) if probe is not None and block >= 0 else None]
        known = [value for value in measured if value is not None]
        if known and min(known) >= BACKPROP:
            return credit
        if not known and facts.header.spec.rule == "bp":  # verified as a whole, by the gradient of every block
            return credit
        found = f"its measured cosine is {number(min(known))}" if known else "that was not measured"
        return BlockCredit(block, "unknown", why=f"said to be exact by construction, and {found}")
    kind = probe.null.kind if probe is not None and probe.null is not None else None
    if credit.standing == "ok" and facts.learns and kind in (None, "fresh feedback"):
        return BlockCredit(block, "unknown", why="its feedback learns: fresh feedback is no null for it")
    return credit


def _backprop(facts: RunFacts, run: RunLog) -> float | None:
    """The smallest gradient cosine over the blocks that train, at the last epoch; None where one was not measured."""
    probe = latest(run.probes)
    if probe is None or (run.last is not None and probe.epoch < run.last.epoch):
        return None
    wanted = [finite(GRADIENT.at(probe, facts.units, block)) for block in range(facts.blocks) if facts.trains(block)]
    known = [value for value in wanted if value is not None]
    return min(known) if known and len(known) == len(wanted) else None


def _last(reading: Reading, update: bool) -> Credits:
    return _family(reading.credits[reading.epoch] if reading.epoch is not None else {}, update)


def _family(credits: Credits, update: bool) -> Credits:
    """The embedding has no update of its own among the blocks."""
    return {block: credit for block, credit in credits.items() if not (update and block < 0)}


def _choose(lasts: Sequence[Credits]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The blocks that are tested, and those left out as exact: deep ones first, the others where none is left."""
    common = [block for block in lasts[0] if all(block in last for last in lasts)]
    exact = {block for block in common if all(last[block].standing == "exact" for last in lasts)}
    deep = tuple(block for block in common if block >= 1 and block not in exact)
    if deep:
        return deep, tuple(block for block in sorted(exact) if block >= 1)
    return tuple(block for block in common if block < 1 and block not in exact), tuple(sorted(exact))


def _unknown(credits: Credits, blocks: Sequence[int]) -> bool:
    return any(not _is_known(credits[block]) for block in blocks)


def _is_known(credit: BlockCredit) -> bool:
    if credit.standing == "ok":
        return credit.draws is not None or None not in (credit.null_mean, credit.null_sd)
    return credit.standing == "zero"


def _tested(credits: Sequence[Credits], blocks: tuple[int, ...], exact: tuple[int, ...]) -> Tested:
    cosines = np.array([[_cosine(seed[block]) for block in blocks] for seed in credits])
    nulls = tuple(_null([seed[block] for block in blocks]) for seed in credits)
    redrawn = all(seed[block].redrawn for seed in credits for block in blocks)
    return Tested(blocks, exact, cosines, nulls, pool(cosines, nulls, redrawn))


def _cosine(credit: BlockCredit) -> float:
    """Credit of exactly zero points nowhere."""
    return 0.0 if credit.cosine is None else credit.cosine


def _null(credits: Sequence[BlockCredit]) -> NullDraws:
    """The joint null of the tested blocks of one seed; a block whose credit is zero has zeros, whatever is drawn."""
    draws = [_drawn(credit.draws) for credit in credits if credit.draws is not None]
    zero = sum(credit.standing == "zero" for credit in credits)
    if len(draws) + zero == len(credits):
        fewest = min((len(values) for values in draws), default=2)
        columns = iter(draws)
        blank = np.zeros(fewest)
        joint = np.stack([blank if credit.standing == "zero" else next(columns)[:fewest] for credit in credits], axis=1)
        whole = joint[np.isfinite(joint).all(axis=1)]
        return NullDraws.of(whole) if len(whole) > 1 else NullDraws(np.nanmean(joint, 0), np.nanstd(joint, 0, ddof=1))
    mean, sd = (np.array([getattr(credit, name) or 0.0 for credit in credits]) for name in ("null_mean", "null_sd"))
    return NullDraws(mean, sd)


def _drawn(draws: NDArray[np.float64] | Slot) -> NDArray[np.float64]:
    return np.frombuffer(draws.read()) if isinstance(draws, Slot) else draws


def _stale(cell: Cell, readings: Sequence[Reading]) -> list[str]:
    said = [
        f"probed at epoch {reading.epoch}, not at the last epoch {run.last.epoch}"
        for run, reading in zip(cell.runs, readings, strict=True)
        if reading.epoch is not None and run.last is not None and reading.epoch < run.last.epoch
    ]
    return said[:1]


def _name(block: int) -> str:
    return f"block {block}" if block >= 0 else "embedding"


def _blocks(blocks: Sequence[int] | NDArray[Any]) -> str:
    deep = [int(block) for block in blocks if block >= 0]
    named = [f"block{'s' if len(deep) > 1 else ''} {listed(deep)}"] if deep else []
    return listed([*named, *(["the embedding"] if len(deep) < len(blocks) else [])])


def _exact_text(exact: Sequence[int]) -> str:
    return f"{_blocks(exact)} exact by construction, not tested"


def _span(interval: Sequence[float | None]) -> str:
    low, high = interval
    return "–" if low is None or high is None else f"[{low:+.3f}, {high:+.3f}]"
