"""The direction check: does the credit of the deep blocks point along the gradient, on the method's seeds together?"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, CheckPlot, Outcome
from creditscope.protocol.checks.block_credit import BlockCredit, epoch_row, last_probe
from creditscope.protocol.checks.tested import (
    BACKPROP,
    Reading,
    Tested,
    asked,
    backprop_gradient,
    choose,
    credits_of,
    last_credits,
    of_family,
    tested_of,
    unknown,
)
from creditscope.protocol.evidence import Evidence, Grade, History, Ruling, SeedOutcome
from creditscope.protocol.facts import RunFacts
from creditscope.protocol.inference import holm, seeds_needed
from creditscope.protocol.pooling import block_spread, reach
from creditscope.protocol.spill import Spill
from creditscope.protocol.text import counted, listed, number
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, ProbeRow
from creditscope.records.table import Table

LEVEL = 0.01
# One seed in so many may lie clearly below the threshold where all together pass.
TOLERATED = 5
# Nobody trains more seeds than this for one method.
MOST_ADVISED = 1000
# Above this mean of the null, another feedback is no longer "no information".
SKIPS_CARRY = 0.1


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
        if len({facts.family for _, facts in cell.members}) > 1:
            return self.not_measured("its logs do not say alike what the rule delivers", settles="")
        readings: tuple[Reading, ...] = cell.readings(self)
        update = cell.family == "update"
        lasts = [last_credits(reading, update) for reading in readings]
        blocks, exact = choose(lasts)
        if not blocks:
            return self._nothing_left(cell, readings, exact, update)
        # What speaks for its cell: a seed that was not probed neither passes nor fires it.
        probed = [at for at, last in enumerate(lasts) if not unknown(last, blocks)]
        silent = [run.name for at, run in enumerate(cell.runs) if at not in probed]
        if not probed:
            whys = dict.fromkeys(last[block].why for last in lasts for block in blocks if last[block].why)
            why = "; ".join(whys) or "the spread of the null is not logged"
            return self.not_measured(why, self._how_to_measure(cell, update))
        tested = tested_of([lasts[at] for at in probed], blocks, exact)
        stale = _stale(cell, readings)
        evidence = self._evidence(tested, complete=not silent)
        if stale or tested.pool.normal:
            evidence = replace(evidence, grade=Grade.PROXY)
        if stale:  # what the last epoch would show is not known
            evidence = replace(evidence, passes_to=-math.inf, fires_to=-math.inf)
        ruling = evidence.ruling(self.threshold, self.side)
        normal = ["the redraws are not logged: their null is taken as normal"] if tested.pool.normal else []
        notes = [*stale, *normal, *([f"not probed: {listed(silent)}"] if silent else [])]
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
        probes = [probe for probe in run.probes if asked(probe) or probe is last]
        credits = {probe.epoch: credits_of(facts, probe, row_of.get(probe.epoch)) for probe in probes}
        if last is None:
            credits = {run.last.epoch if run.last else 0: credits_of(facts, None, epoch_row(run, None))}
        return Reading(credits, backprop_gradient(facts, run))

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
        if not isinstance(row, ProbeRow) or not asked(row):
            return None
        credits = of_family(credits_of(facts, row, epoch), facts.family == "update")
        blocks, exact = choose([credits])
        if not blocks or unknown(credits, blocks):
            return False
        tested = tested_of([credits], blocks, exact)
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
            low = int((reach(tested.cosines, tested.nulls) < self.threshold).sum())
            return f"seeds disagree: {low} lie clearly below" if low > seeds // TOLERATED else "not every seed tells"
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
            credits = [of_family(reading.credits[epoch], update) for reading in readings]
            if epoch and not any(unknown(each, blocks) for each in credits):
                evidence = self._evidence(tested_of(credits, blocks, ()), complete=True)
                fired.append((epoch, evidence.ruling(self.threshold, self.side) is Ruling.FIRES))
        found = History.of(fired)
        if ruling is Ruling.FIRES:
            return found if found.first is not None else History(first=max(epochs, default=None))
        return found if found.recovered is not None else History()


def _stale(cell: Cell, readings: Sequence[Reading]) -> list[str]:
    said = [
        f"probed at epoch {reading.epoch}, not at the last epoch {run.last.epoch}"
        for run, reading in zip(cell.runs, readings, strict=True)
        if reading.epoch is not None and run.last is not None and reading.epoch != run.last.epoch
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
