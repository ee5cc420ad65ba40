"""Bounds on the growth of a residual stream of which only some states were logged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class GrowthBounds:
    """What the known states allow the largest per-block ratio to be.

    Args:
        low: Lower end; −∞ when nothing is known from below.
        high: Upper end; ∞ when nothing is known from above.
        refuted: The assumption that a log contradicts, in words; empty when none.
    """

    low: float
    high: float
    refuted: str = ""


def growth_bounds(ratio: float, blocks: int, smallest: float) -> GrowthBounds:
    """The interval of the largest per-block ratio over ``blocks`` blocks whose product is known.

    Args:
        ratio: P = ‖h_j‖/‖h_i‖ over those blocks.
        blocks: How many they are.
        smallest: r, the smallest per-block ratio assumed.
    """
    if blocks == 1:
        return GrowthBounds(ratio, ratio)
    if ratio < smallest**blocks:
        return GrowthBounds(
            -math.inf,
            math.inf,
            f"the stream shrank {1 / ratio if ratio else math.inf:.3g}-fold over {blocks} blocks, which refutes the "
            f"assumption that no block shrinks it below {smallest:g}×",
        )
    return GrowthBounds(ratio ** (1 / blocks), ratio / smallest ** (blocks - 1))


def blocks_at_least(ratio: float, blocks: int, smallest: float, factor: float) -> int:
    """The most blocks that can be at ``factor`` or more: min(L, ⌊(ln P − L·ln r)/(ln factor − ln r)⌋).

    Args:
        ratio: P over all the blocks.
        blocks: L.
        smallest: r.
        factor: The per-block ratio asked for; above r.
    """
    room = (math.log(ratio) - blocks * math.log(smallest)) / (math.log(factor) - math.log(smallest))
    return max(0, math.floor(min(blocks, room + 1e-12)))


def stream_bounds(states: Sequence[float | None], smallest: float) -> GrowthBounds:
    """Bounds from a residual stream with unknown states, both ends known; each gap is bounded by its own product.

    Args:
        states: Norms of h_0..h_L, None where not logged; first and last known and positive.
        smallest: r.
    """
    known = [(index, norm) for index, norm in enumerate(states) if norm is not None]
    low = high = 0.0
    for (i, a), (j, b) in pairwise(known):
        part = growth_bounds(b / a, j - i, smallest)
        if part.refuted:
            return part
        low, high = max(low, part.low), max(high, part.high)
    return GrowthBounds(low, high)
