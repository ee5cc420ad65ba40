"""What one probe says of the credit of each block of one run: its cosine, its null, or why there is none."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from creditscope.protocol.facts import RunFacts, finite
from creditscope.protocol.spill import Slot
from creditscope.quantities.expensive import GRADIENT
from creditscope.quantities.per_epoch import COSINE, REFERENCE
from creditscope.records.log import RunLog, latest
from creditscope.records.measured import NullTest
from creditscope.records.rows import EpochRow, ProbeRow

Standing = Literal["ok", "exact", "zero", "unknown"]


@dataclass(frozen=True, slots=True)
class BlockCredit:
    """What one probe says of one block of one run.

    Args:
        block: Which block; its credit acts at state ``block`` + 1. The embedding is block −1.
        standing: ``ok``; ``exact`` by construction; ``zero`` credit; or ``unknown``.
        cosine: Mean cosine.
        p: Against the fresh-feedback null.
        draws: The null's values, or where they lie; NaN where one is not finite; None when they were not kept.
        null_mean: Mean of the null.
        null_sd: Standard deviation of the null.
        redraws: K.
        why: What is unknown, in words.
        redrawn: Whether the null draws the rule's feedback again; else it shuffles labels or rotates the credit.
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
    redrawn: bool = True


def last_probe(run: RunLog) -> ProbeRow | None:
    """The last probe row that speaks of the null; else the last probe row."""
    held = [row for row in run.probes if row.null is not None] or list(run.probes)
    return latest(held)


def epoch_row(run: RunLog, probe: ProbeRow | None) -> EpochRow | None:
    """The epoch row of a probe's epoch, for the status of its cosines."""
    if probe is None:
        return run.last
    return next((row for row in run.epochs if row.epoch == probe.epoch), None)


def read_blocks(facts: RunFacts, probe: ProbeRow | None, row: EpochRow | None) -> list[BlockCredit]:
    """What a probe says of each deep block that trains: block l acts at state l + 1.

    Args:
        facts: The run.
        probe: Its null.
        row: The epoch row of the same epoch.
    """
    blocks = [block for block in range(1, facts.blocks) if facts.trains(block)]
    return [read_block(facts, block, probe, row) for block in blocks]


def read_block(facts: RunFacts, block: int, probe: ProbeRow | None, row: EpochRow | None) -> BlockCredit:
    """What a probe says of the credit of one block.

    Args:
        facts: The run.
        block: Which; −1 is the embedding.
        probe: Its null.
        row: The epoch row of the same epoch.
    """
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
        return BlockCredit(block, "unknown", why=f"no null of the cosine is logged{f' ({said})' if said else ''}")
    return _against_null(block, null, state, f"state {state}")


def read_update(facts: RunFacts, block: int, probe: ProbeRow | None) -> BlockCredit:
    """What a probe says of the update of one block: the cosine of its raw gradient and backprop's.

    Args:
        facts: The run.
        block: Which.
        probe: The probe row.
    """
    value = GRADIENT.at(probe, facts.units, block) if probe is not None else None
    if probe is None or value is None:
        said = probe.not_measured.get("gradient_cosine") if probe is not None else None
        return BlockCredit(block, "unknown", why=f"no cosine of the update is logged{f' ({said})' if said else ''}")
    null = GRADIENT.null(probe)
    if null is None:
        said = probe.not_measured.get("gradient_null")
        return BlockCredit(block, "unknown", why=f"no null of the update is logged{f' ({said})' if said else ''}")
    return _against_null(block, null, block, f"block {block}")


def _against_null(block: int, null: NullTest, at: int, where: str) -> BlockCredit:
    observed, p = finite(_at(null.observed, at)), finite(_at(null.p, at))
    if observed is None:
        return BlockCredit(block, "unknown", why=f"no cosine at {where}")
    draws = _array(null.draws[at]) if null.draws and len(null.draws) > at else None
    if draws is None and p is None:
        return BlockCredit(block, "unknown", why=f"no null at {where}")
    mean, sd = finite(_at(null.mean, at)), finite(_at(null.sd, at))
    redraws = null.redraws if draws is None else int(np.isfinite(draws).sum())
    redrawn = null.kind in (None, "fresh feedback")
    return BlockCredit(block, "ok", observed, p, draws, mean, sd, redraws, redrawn=redrawn)


def _array(values: list[float | None]) -> NDArray[np.float64] | None:
    """The draws, a place for each: the k-th of every block is one joint redraw. None where they show no spread."""
    array = np.asarray(values, dtype=float)
    return array if np.isfinite(array).sum() > 1 else None


def is_silent(blocks: list[BlockCredit]) -> bool:
    """Whether a run says nothing of any deep block that could be judged."""
    return all(block.standing == "unknown" for block in blocks if block.standing != "exact") and any(
        block.standing == "unknown" for block in blocks
    )


def _at(values: list[float | None], index: int) -> float | None:
    return values[index] if len(values) > index else None
