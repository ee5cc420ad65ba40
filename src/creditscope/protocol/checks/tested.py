"""Which blocks direction tests, and what one run and all seeds together say of their credit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from creditscope.protocol.checks.block_credit import BlockCredit, read_block, read_update
from creditscope.protocol.facts import RunFacts, finite
from creditscope.protocol.pooling import NullDraws, Pool, pool
from creditscope.protocol.spill import Slot
from creditscope.protocol.text import number
from creditscope.quantities.expensive import GRADIENT
from creditscope.quantities.per_epoch import COSINE
from creditscope.records.log import RunLog, latest
from creditscope.records.rows import EpochRow, ProbeRow

# Backprop is taken for backprop where its gradient was measured to be the true one to within this cosine.
BACKPROP = 0.9999

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


def asked(probe: ProbeRow) -> bool:
    """Whether a trained net's probe was asked for a null."""
    return probe.epoch != 0 and (probe.null is not None or probe.gradient_null is not None)


def credits_of(facts: RunFacts, probe: ProbeRow | None, row: EpochRow | None) -> Credits:
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
        # Exact credit that is divided sample by sample keeps its direction; the mean over samples does not.
        whole = facts.header.spec.credit_norm != "rms"
        measured += [GRADIENT.at(probe, facts.units, block) if probe is not None and block >= 0 and whole else None]
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


def backprop_gradient(facts: RunFacts, run: RunLog) -> float | None:
    """The smallest gradient cosine over the blocks that train, at the last epoch; None where one was not measured."""
    probe = latest(run.probes)
    if probe is None or (run.last is not None and probe.epoch < run.last.epoch):
        return None
    wanted = [finite(GRADIENT.at(probe, facts.units, block)) for block in range(facts.blocks) if facts.trains(block)]
    known = [value for value in wanted if value is not None]
    return min(known) if known and len(known) == len(wanted) else None


def last_credits(reading: Reading, update: bool) -> Credits:
    """What the last probe of a run says."""
    return of_family(reading.credits[reading.epoch] if reading.epoch is not None else {}, update)


def of_family(credits: Credits, update: bool) -> Credits:
    """The embedding has no update of its own among the blocks."""
    return {block: credit for block, credit in credits.items() if not (update and block < 0)}


def choose(lasts: Sequence[Credits]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The blocks that are tested, and those left out as exact: deep ones first, the others where none is left."""
    common = [block for block in lasts[0] if all(block in last for last in lasts)]
    exact = {block for block in common if all(last[block].standing == "exact" for last in lasts)}
    deep = tuple(block for block in common if block >= 1 and block not in exact)
    if deep:
        return deep, tuple(block for block in sorted(exact) if block >= 1)
    return tuple(block for block in common if block < 1 and block not in exact), tuple(sorted(exact))


def unknown(credits: Credits, blocks: Sequence[int]) -> bool:
    """Whether something is missing of some of these blocks."""
    return any(not _is_known(credits[block]) for block in blocks)


def _is_known(credit: BlockCredit) -> bool:
    if credit.standing == "ok":
        return credit.draws is not None or None not in (credit.null_mean, credit.null_sd)
    return credit.standing == "zero"


def tested_of(credits: Sequence[Credits], blocks: tuple[int, ...], exact: tuple[int, ...]) -> Tested:
    """The cosines and nulls of these blocks over seeds, with what they say together."""
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
