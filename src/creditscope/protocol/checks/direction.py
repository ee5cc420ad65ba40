"""The direction check: does the credit of the deep blocks point anywhere near the gradient, by more than chance?"""

import math
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, Evidence, Grade, History, Outcome, Ruling, SeedOutcome, worst
from creditscope.protocol.facts import RunFacts, finite
from creditscope.protocol.inference import holm, monte_carlo_p
from creditscope.protocol.spill import Slot, Spill
from creditscope.protocol.text import listed, number
from creditscope.quantities.per_epoch import COSINE, REFERENCE
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, ProbeRow

LEVEL = 0.01
# A live alert, and a firing epoch in the history, need this many firing probes in a row.
PROBES_IN_A_ROW = 3
# Above this mean of the null, another feedback is no longer "no information".
SKIPS_CARRY = 0.1
Standing = Literal["ok", "exact", "zero", "unknown"]


@dataclass(frozen=True)
class BlockCredit:
    """What one probe says of one deep block of one run.

    Args:
        block: Which block; its credit acts at state ``block`` + 1.
        standing: ``ok``; ``exact`` by construction; ``zero`` credit; or ``unknown``.
        cosine: Mean cosine.
        p: Against the fresh-feedback null.
        draws: The null's values, or where they lie; None when they were not kept.
        null_mean: Mean of the null.
        null_sd: Standard deviation of the null.
        redraws: K.
        why: What is unknown, in words.
    """

    block: int
    standing: Standing
    cosine: float | None = None
    p: float | None = None
    draws: NDArray[np.float64] | Slot | None = None
    null_mean: float | None = None
    null_sd: float | None = None
    redraws: int = 0
    why: str = ""


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
    side = "below"

    def distance(self, value: float | None) -> float | None:
        """Cosine above the threshold."""
        return None if value is None else value - self.threshold

    def near(self, value: float | None) -> bool:
        """Within ×2 of the threshold."""
        return value is not None and self.threshold > 0 and 0.5 <= value / self.threshold <= 2

    def judge(self, cell: Cell) -> Outcome:
        """Test each deep block on the mean over seeds, with independent redraws."""
        readings: tuple[Reading, ...] = cell.readings(self)
        credits = [reading.blocks for reading in readings]
        if not credits[0]:
            return self.not_measured("no deep block trains")
        silent = [run.name for run, blocks in zip(cell.runs, credits, strict=True) if _silent(blocks)]
        tests = self._test([blocks for blocks in credits if not _silent(blocks)] or credits)
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
        settles = (
            "probe the last checkpoint with the run's own feedback and K = 999 redraws; more seeds where undecided"
        )
        return self.outcome(evidence, reason, seeds, settles, details={"blocks": [_block_dict(test) for test in tests]})

    def read(self, run: RunLog, facts: RunFacts) -> Reading:
        """The deep blocks at the run's last probe, and when the run fired."""
        probe = last_probe(run)
        blocks = read_blocks(facts, probe, epoch_row(run, probe))
        return Reading(probe.epoch if probe is not None else None, blocks, self._history(run, facts, probe, blocks))

    def put_away(self, reading: Reading, spill: Spill) -> Reading:
        """The reading with the redraws, which only a test over seeds needs again, on a spill."""
        return replace(
            reading,
            blocks=[
                replace(block, draws=spill.put(block.draws.tobytes())) if isinstance(block.draws, np.ndarray) else block
                for block in reading.blocks
            ],
        )

    def fires(self, facts: RunFacts, probe: ProbeRow, row: EpochRow | None) -> bool:
        """Whether one run's probe, taken alone, fires."""
        return self._fires(read_blocks(facts, probe, row))

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
        words = {
            Ruling.PASSES: f"every deep block has p < {LEVEL:g} and cosine ≥ {number(self.threshold)}",
            Ruling.FIRES: f"no deep block has p < {LEVEL:g} (Holm) and cosine ≥ {number(self.threshold)}",
        }
        held = f"only {_blocks(good)} clearly" if good else "no block clearly"
        head = words.get(ruling, f"{held} with p < {LEVEL:g} and cosine ≥ {number(self.threshold)}")
        exact = [test for test in tests if test.standing == "exact"]
        tail = [f"{_blocks(exact)} exact by construction, not counted"] if exact else []
        return "; ".join([head, ", ".join(_block_words(test) for test in judged), *tail])

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
        """Firing counts from the third firing probe in a row on; the untrained net is not asked."""
        fired: list[tuple[int, bool]] = []
        row_of = {row.epoch: row for row in run.epochs}
        streak = 0
        for probe in run.probes:
            if probe.epoch == 0 or probe.null is None:
                continue
            blocks = blocks_of_last if probe is last else read_blocks(facts, probe, row_of.get(probe.epoch))
            streak = streak + 1 if self._fires(blocks) else 0
            fired.append((probe.epoch, streak >= PROBES_IN_A_ROW))
        return History.of(fired)


def last_probe(run: RunLog) -> ProbeRow | None:
    """The last probe row that speaks of the null; else the last probe row."""
    held = [row for row in run.probes if row.null is not None] or list(run.probes)
    return max(held, key=lambda row: row.epoch, default=None)


def epoch_row(run: RunLog, probe: ProbeRow | None) -> EpochRow | None:
    """The epoch row beside a probe, for the status of its cosines."""
    if probe is None:
        return run.last
    return next((row for row in run.epochs if row.epoch == probe.epoch), None)


def read_blocks(facts: RunFacts, probe: ProbeRow | None, row: EpochRow | None) -> list[BlockCredit]:
    """What a probe says of each deep block that trains: block l acts at state l + 1.

    Args:
        facts: The run.
        probe: Its null.
        row: The epoch row beside it.
    """
    blocks = [block for block in range(1, facts.blocks) if facts.trains(block)]
    return [_read_block(facts, block, probe, row) for block in blocks]


def _read_block(facts: RunFacts, block: int, probe: ProbeRow | None, row: EpochRow | None) -> BlockCredit:
    state = block + 1
    statuses = COSINE.status(row) if row is not None else ()
    status = statuses[state] if len(statuses) > state else "not measured"
    exact = facts.exact[state] if len(facts.exact) > state else False
    if exact or status == "exact-by-construction":
        return BlockCredit(block, "exact")
    if status == "zero-vector":
        if row is not None and REFERENCE.at(row, facts.units, state):
            return BlockCredit(block, "zero", why="credit is zero")
        return BlockCredit(block, "unknown", why="the reference gradient is zero, or its norm is not logged")
    if status in ("below-fidelity", "no-credit-saved"):
        return BlockCredit(block, "unknown", why=f"cosine status: {status}")
    null = COSINE.null(probe) if probe is not None else None
    if null is None:
        said = probe.not_measured.get("null") if probe is not None else None
        return BlockCredit(block, "unknown", why=f"no fresh-feedback null is logged{f' ({said})' if said else ''}")
    observed, p = finite(_at(null.observed, state)), finite(_at(null.p, state))
    if observed is None:
        return BlockCredit(block, "unknown", why=f"no cosine at state {state}")
    draws = _finite_array(null.draws[state]) if null.draws and len(null.draws) > state else None
    if draws is None and p is None:
        return BlockCredit(block, "unknown", why=f"no null at state {state}")
    mean, sd = finite(_at(null.mean, state)), finite(_at(null.sd, state))
    redraws = null.redraws if draws is None else len(draws)
    return BlockCredit(block, "ok", observed, p, draws, mean, sd, redraws)


def _finite_array(values: list[float | None]) -> NDArray[np.float64] | None:
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    return array if len(array) else None


def _drawn(draws: NDArray[np.float64] | Slot) -> NDArray[np.float64]:
    return np.frombuffer(draws.read()) if isinstance(draws, Slot) else draws


def _silent(blocks: list[BlockCredit]) -> bool:
    """Whether a run says nothing of any deep block that could be judged."""
    return all(block.standing == "unknown" for block in blocks if block.standing != "exact") and any(
        block.standing == "unknown" for block in blocks
    )


def _at(values: list[float | None], index: int) -> float | None:
    return values[index] if len(values) > index else None


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


def _block_words(test: BlockTest) -> str:
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
