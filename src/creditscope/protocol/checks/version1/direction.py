"""The direction check: does the credit of the deep blocks point anywhere near the gradient, by more than chance?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, CheckPlot, Outcome
from creditscope.protocol.checks.block_credit import (
    BlockCredit,
    Standing,
    epoch_row,
    is_silent,
    last_probe,
    read_blocks,
)
from creditscope.protocol.evidence import Evidence, Grade, History, Ruling, SeedOutcome, worst
from creditscope.protocol.facts import RunFacts
from creditscope.protocol.inference import holm, monte_carlo_p
from creditscope.protocol.spill import Slot, Spill
from creditscope.protocol.text import listed, number
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, ProbeRow
from creditscope.records.table import Table

LEVEL = 0.01
# Above this mean of the null, another feedback is no longer "no information".
SKIPS_CARRY = 0.1


@dataclass(frozen=True)
class Reading:
    """One run as this check sees it.

    Args:
        epoch: Of its last probe; None when there is none.
        blocks: What that probe says of each deep block that trains.
        history: When the run fired.
    """

    epoch: int | None
    blocks: list[BlockCredit]
    history: History


@dataclass(frozen=True)
class BlockTest:
    """The test of one deep block over the seeds of a cell.

    Args:
        block: Which block.
        standing: As in ``BlockCredit``, of all seeds together.
        cosine: Mean over seeds.
        p: Raw.
        adjusted: Holm's, over the deep blocks tested.
        grade: ``exact`` with redraws, ``proxy`` when the null was taken as normal.
        why: What is unknown.
        null_mean: Mean of the null; far above 0 where skips carry exact gradient.
        least: The smallest p that its redraws can show.
    """

    block: int
    standing: Standing
    cosine: float | None
    p: float | None
    adjusted: float | None = None
    grade: Grade = Grade.EXACT
    why: str = ""
    null_mean: float | None = None
    least: float = 0.0


@final
class Direction(Check):
    """Passes if every deep block has p < .01 and a cosine of at least the threshold; fires if none has (Holm)."""

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
        "The credit of the deep blocks is not told from noise. Do not quote an aggregate Γ, which the first state can "
        "carry alone; report the cosine of each block with its null."
    )
    settled_by = (
        "probe the last checkpoint with the run's own feedback and K = 999 redraws; more seeds where undecided; for "
        "feedback that learns, compare with @fixed-feedback"
    )
    plot = CheckPlot(("cosine", "published", "gradient", "rho", "nudge", "descent"), "layers", lines=("cosine",))
    live = True
    in_a_row = 3
    keeps_rows = False

    def judge(self, cell: Cell) -> Outcome:
        """Test each deep block on the mean over seeds, with independent redraws."""
        readings: tuple[Reading, ...] = cell.readings(self)
        credits = [reading.blocks for reading in readings]
        if not credits[0]:
            return self.not_measured("no deep block trains", settles="")
        silent = [run.name for run, blocks in zip(cell.runs, credits, strict=True) if is_silent(blocks)]
        tests = self._test([blocks for blocks in credits if not is_silent(blocks)] or credits)
        evidence = self._evidence(tests)
        if silent and evidence.grade is not Grade.MISSING:
            # The seeds that were probed may fire for the cell, but cannot pass for those that were not.
            evidence = Evidence(evidence.value, -math.inf, evidence.high, evidence.grade)
        stale = [
            f"probed at epoch {reading.epoch}, not at the last epoch {run.last.epoch}"
            for run, reading in zip(cell.runs, readings, strict=True)
            if reading.epoch is not None and run.last is not None and reading.epoch < run.last.epoch
        ]
        if stale and evidence.grade is not Grade.MISSING:
            evidence = Evidence(evidence.value, evidence.low, evidence.high, Grade.PROXY, (stale[0],))
        seeds = tuple(self._seed(run, reading) for run, reading in zip(cell.runs, readings, strict=True))
        unprobed = [f"not probed: {listed(silent)}"] if silent and evidence.grade is not Grade.MISSING else []
        reason = "; ".join([self._sentence(tests, evidence), *stale[:1], *unprobed])
        return self.outcome(evidence, reason, seeds, details={"blocks": [_block_dict(test) for test in tests]})

    def read(self, run: RunLog, facts: RunFacts) -> Reading:
        """The deep blocks at the run's last probe, and when the run fired."""
        probe = last_probe(run)
        blocks = read_blocks(facts, probe, epoch_row(run, probe))
        return Reading(probe.epoch if probe is not None else None, blocks, self._history(run, facts, probe, blocks))

    def put_away(self, reading: Reading, spill: Spill) -> Reading:
        """The reading with its redraws on a spill: only a test over seeds needs them again."""
        return replace(
            reading,
            blocks=[
                replace(block, draws=spill.put(block.draws.tobytes())) if isinstance(block.draws, np.ndarray) else block
                for block in reading.blocks
            ],
        )

    def fires_on(self, facts: RunFacts, row: EpochRow | ProbeRow, epoch: EpochRow | None) -> bool | None:
        """Whether one run's probe, taken alone, fires; the untrained net is not asked."""
        if not isinstance(row, ProbeRow) or not _asked(row):
            return None
        return self._fires(read_blocks(facts, row, epoch))

    def alert(self, facts: RunFacts, row: EpochRow | ProbeRow, fires: bool) -> str:
        """How many probes it took."""
        return f"{self.in_a_row} probes in a row" if fires else "a probe no longer fires"

    def extra(self, judged: Sequence[tuple[str, Cell, Outcome]]) -> Table:
        """The deep blocks one by one."""
        rows: list[tuple[str, ...]] = []
        for label, _, outcome in judged:
            blocks: list[dict[str, Any]] = outcome.details.get("blocks", [])
            exact = [str(block["block"]) for block in blocks if block["standing"] == "exact"]
            if exact:
                rows.append((label, ", ".join(exact), *"––––", "exact by construction, not counted"))
            for block in (block for block in blocks if block["standing"] != "exact"):
                values = [block[key] for key in ("cosine", "p", "p_holm", "null_mean")]
                shown = ("–" if value is None else number(value) for value in values)
                rows.append((label, str(block["block"]), *shown, block["why"] or ""))
        columns = ("method", "block", "cosine", "p", "p (Holm)", "null mean", "note")
        return Table(columns, tuple(rows), title="Deep blocks, pooled over seeds")

    def _fires(self, blocks: list[BlockCredit]) -> bool:
        return bool(blocks) and self._evidence(self._test([blocks])).ruling(self.threshold, self.side) is Ruling.FIRES

    def _test(self, credits: list[list[BlockCredit]]) -> list[BlockTest]:
        """Raw tests per block, then Holm over those that could be tested.

        Where the redraws are too few for Holm to show anything, the plain p stands: few redraws must not fire.
        """
        raw = [_pool(list(seeds)) for seeds in zip(*credits, strict=True)]
        tested = [i for i, test in enumerate(raw) if test.p is not None]
        plain = [raw[i].p or 0.0 for i in tested]
        powerless = any(len(tested) * raw[i].least >= LEVEL for i in tested)
        adjusted = dict(zip(tested, plain if powerless else holm(plain), strict=True))
        return [replace(test, adjusted=adjusted.get(i)) for i, test in enumerate(raw)]

    def _evidence(self, tests: list[BlockTest]) -> Evidence:
        """Evidence in units of the cosine threshold.

        ``low`` is what every block clears: all must be significant, each at the plain level, since a
        conjunction of tests needs no correction. ``high`` is what some block clears: the largest cosine among
        those that stay significant after Holm.
        """
        judged = [test for test in tests if test.standing != "exact"]
        if not judged:
            return Evidence(None, math.inf, math.inf, Grade.EXACT)
        if all(test.standing == "unknown" for test in judged):
            return Evidence.missing("; ".join(dict.fromkeys(test.why for test in judged)))
        cosines = [test.cosine for test in judged if test.cosine is not None]
        all_significant = all(test.p is not None and test.p < LEVEL and test.cosine is not None for test in judged)
        significant = [
            test.cosine
            for test in judged
            if test.cosine is not None and (test.adjusted or 0.0) < LEVEL and test.adjusted is not None
        ]
        unknown = any(test.standing == "unknown" for test in judged)
        low = min(cosines) if all_significant else -math.inf
        high = math.inf if unknown else max([*significant, low])
        grade = worst(test.grade for test in judged if test.standing != "unknown")
        return Evidence(min(cosines, default=None), low, high, grade)

    def _sentence(self, tests: list[BlockTest], evidence: Evidence) -> str:
        judged = [test for test in tests if test.standing != "exact"]
        if not judged:
            return "exact by construction at every deep block"
        ruling = evidence.ruling(self.threshold, self.side)
        if ruling is Ruling.NOT_MEASURED:
            return "; ".join(evidence.notes)
        good = [t for t in judged if t.p is not None and t.p < LEVEL and (t.cosine or -1.0) >= self.threshold]
        heads = {
            Ruling.PASSES: f"every deep block has p < {LEVEL:g} and cosine ≥ {number(self.threshold)}",
            Ruling.FIRES: f"no deep block has p < {LEVEL:g} (Holm) and cosine ≥ {number(self.threshold)}",
        }
        held = f"only {_blocks(good)} clearly" if good else "no block clearly"
        head = heads.get(ruling, f"{held} with p < {LEVEL:g} and cosine ≥ {number(self.threshold)}")
        exact = [test for test in tests if test.standing == "exact"]
        tail = [f"{_blocks(exact)} exact by construction, not counted"] if exact else []
        return "; ".join([head, ", ".join(_block_text(test) for test in judged), *tail])

    def _seed(self, run: RunLog, reading: Reading) -> SeedOutcome:
        evidence = self._evidence(self._test([reading.blocks]))
        ruling = evidence.ruling(self.threshold, self.side)
        history = reading.history
        if ruling is Ruling.FIRES and history.first is None:
            history = History(first=reading.epoch)
        return SeedOutcome(run.spec.seed, run.name, reading.epoch, ruling, evidence, history)

    def _history(
        self, run: RunLog, facts: RunFacts, last: ProbeRow | None, blocks_of_last: list[BlockCredit]
    ) -> History:
        """Only firing probes in a row count."""
        row_of = {row.epoch: row for row in run.epochs}
        fired = []
        for probe in filter(_asked, run.probes):
            blocks = blocks_of_last if probe is last else read_blocks(facts, probe, row_of.get(probe.epoch))
            fired.append((probe.epoch, self._fires(blocks)))
        return History.of(fired, self.in_a_row)


def _asked(probe: ProbeRow) -> bool:
    return probe.epoch != 0 and probe.null is not None


def _drawn(draws: NDArray[np.float64] | Slot) -> NDArray[np.float64]:
    values = np.frombuffer(draws.read()) if isinstance(draws, Slot) else draws
    return values[np.isfinite(values)]


def _pool(seeds: list[BlockCredit]) -> BlockTest:
    """One block over seeds. A seed with zero credit counts as a cosine of 0 that no test can save."""
    block = seeds[0].block
    standings = {seed.standing for seed in seeds}
    if standings == {"exact"}:
        return BlockTest(block, "exact", None, None)
    if "unknown" in standings:
        return BlockTest(block, "unknown", None, None, why=next(s.why for s in seeds if s.standing == "unknown"))
    if "zero" in standings:
        return BlockTest(block, "zero", None, None, why="credit is zero")
    cosine = fmean(seed.cosine for seed in seeds if seed.cosine is not None)
    fewest = min(seed.redraws for seed in seeds)
    least = 1 / (fewest + 1)
    if least >= LEVEL and cosine > 0:
        return BlockTest(block, "unknown", cosine, None, why=f"{fewest} redraws cannot show p < {LEVEL:g}")
    means = [seed.null_mean for seed in seeds if seed.null_mean is not None]
    null_mean = fmean(means) if means else None
    draws = [_drawn(seed.draws) for seed in seeds if seed.draws is not None]
    if len(draws) == len(seeds):
        mean = np.mean([values[:fewest] for values in draws], axis=0)
        return BlockTest(block, "ok", cosine, monte_carlo_p(cosine, mean), null_mean=null_mean, least=least)
    if len(seeds) == 1:
        return BlockTest(block, "ok", cosine, seeds[0].p, null_mean=null_mean, least=least)
    return _normal(seeds, block, cosine)


def _normal(seeds: list[BlockCredit], block: int, cosine: float) -> BlockTest:
    """Several seeds without stored redraws: the null of the mean is taken as normal, and graded so."""
    means = [seed.null_mean for seed in seeds if seed.null_mean is not None]
    sds = [seed.null_sd for seed in seeds if seed.null_sd is not None]
    if len(means) < len(seeds) or len(sds) < len(seeds):
        return BlockTest(block, "unknown", cosine, None, why="the null's redraws are not logged")
    sd = math.sqrt(sum(value**2 for value in sds)) / len(sds)
    p = float(special.ndtr((fmean(means) - cosine) / sd)) if sd > 0 else float(cosine <= fmean(means))
    why = "null taken as normal: its redraws are not logged"
    return BlockTest(block, "ok", cosine, p, grade=Grade.PROXY, why=why, null_mean=fmean(means))


def _blocks(tests: list[BlockTest]) -> str:
    return ("block " if len(tests) == 1 else "blocks ") + listed(test.block for test in tests)


def _block_text(test: BlockTest) -> str:
    if test.cosine is None or test.p is None:
        return f"block {test.block}: {test.why}"
    skips = (
        f"null mean {test.null_mean:+.2f}: skips carry exact gradient" if (test.null_mean or 0) > SKIPS_CARRY else ""
    )
    notes = "; ".join(note for note in (test.why, skips) if note)
    adjusted = f" (Holm {number(test.adjusted)})" if test.adjusted not in (None, test.p) else ""
    said = f"block {test.block}: cosine {test.cosine:+.3f}, p = {number(test.p)}{adjusted}"
    return said + (f" ({notes})" if notes else "")


def _block_dict(test: BlockTest) -> dict[str, Any]:
    return {
        "block": test.block,
        "state": test.block + 1,
        "standing": test.standing,
        "cosine": test.cosine,
        "p": test.p,
        "p_holm": test.adjusted,
        "null_mean": test.null_mean,
        "why": test.why or None,
    }
