"""Blocks over seeds: what several runs together say of the alignment of correlated blocks. Arithmetic alone.

Credits of one run reach its blocks through one error, so their cosines move together: m blocks are not m independent
repetitions. The correlation of the blocks over joint redraws says how many they are worth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from creditscope.protocol.inference import monte_carlo_p

# A block is judged by a 95 % interval; "against the gradient" is said at this level in all, over all tested blocks.
TAIL = 0.025
# The spread of Γ over redraws counts as this many seeds: it steadies a spread that few seeds tell badly.
PRIOR_SEEDS = 4
# A seed lies below a value when it does so by more than so many standard deviations of its own null.
CLEARLY = 2.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NullDraws:
    """The null of one run over its tested blocks.

    Args:
        mean: Per block.
        sd: Per block.
        draws: (K, blocks), a row a joint redraw; None where they were not logged.
    """

    mean: Array
    sd: Array
    draws: Array | None = None

    @classmethod
    def of(cls, draws: Array) -> "NullDraws":
        """The null that some redraws are a sample of.

        Args:
            draws: (K, blocks).
        """
        return cls(draws.mean(axis=0), draws.std(axis=0, ddof=1), draws)


@dataclass(frozen=True)
class Pool:
    """Tested blocks over the seeds of a cell.

    Args:
        mean: Mean cosine per block.
        low: Lower end of each block's 95 % interval; −∞ from one seed.
        high: Upper end.
        p: Against the null, per block.
        null_mean: Per block.
        against: Per block, whether it points against the gradient: its interval at level .025/m lies below 0.
        gamma: Mean over blocks and seeds.
        gamma_high: Upper end of the interval of Γ̄ that a fire asks for; ∞ from fewer than three seeds.
        degrees: Degrees of freedom of the block intervals.
        normal: Whether the null was taken as normal because redraws are not logged.
        least_p: The smallest p that the redraws can show.
    """

    mean: Array
    low: Array
    high: Array
    p: Array
    null_mean: Array
    against: NDArray[np.bool_]
    gamma: float
    gamma_high: float
    degrees: float
    normal: bool
    least_p: float


def pool(cosines: Array, nulls: Sequence[NullDraws], redrawn: bool = True) -> Pool:
    """Sum up the cosines of some blocks over seeds.

    Args:
        cosines: (seeds, blocks).
        nulls: Of each seed.
        redrawn: Whether the null draws again what differs between seeds, as fresh feedback does. Shuffled labels and
            rotated credit do not: how blocks vary together, and by how much, is then told by the seeds alone.
    """
    seeds, blocks = cosines.shape
    mean = cosines.mean(axis=0)
    spread = block_spread(cosines)
    degrees = (seeds - 1) * (worth(correlation(nulls, blocks)) if redrawn else 1.0)
    half, far = (_half_width(spread, seeds, degrees, tail) for tail in (TAIL, TAIL / blocks))
    gamma = cosines.mean(axis=1)
    p, least = _p_values(mean, nulls)
    return Pool(
        mean=mean,
        low=mean - half,
        high=mean + half,
        p=p,
        null_mean=np.mean([null.mean for null in nulls], axis=0),
        against=mean + far < 0 if seeds > 2 else np.zeros(blocks, dtype=bool),
        gamma=float(gamma.mean()),
        gamma_high=_gamma_high(gamma, gamma_variance(nulls) if redrawn else None) if seeds > 2 else math.inf,
        degrees=degrees,
        normal=any(null.draws is None for null in nulls),
        least_p=least,
    )


def block_spread(cosines: Array) -> Array:
    """Standard deviation over seeds of each block's cosine, none taken smaller than their root mean square.

    Args:
        cosines: (seeds, blocks).
    """
    if len(cosines) < 2:
        return np.full(cosines.shape[1], np.inf)
    variance = cosines.var(axis=0, ddof=1)
    spread: Array = np.sqrt(np.maximum(variance, variance.mean()))
    return spread


def correlation(nulls: Sequence[NullDraws], blocks: int) -> Array:
    """Correlation of the blocks over joint redraws, averaged over seeds; 1 where nothing tells it.

    Args:
        nulls: Of each seed.
        blocks: How many.
    """
    found = [_correlation(null.draws) for null in nulls if null.draws is not None]
    return np.asarray(np.mean(found, axis=0)) if found else np.ones((blocks, blocks))


def _correlation(draws: Array) -> Array:
    centred = draws - draws.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    product, scale = centred.T @ centred, np.outer(size, size)
    known = scale > 0
    found: Array = np.where(known, product / np.where(known, scale, 1.0), 1.0)
    return found


def worth(correlation: Array) -> float:
    """How many independent blocks so many correlated ones are worth for a pooled variance: m²/‖R‖².

    Args:
        correlation: R.
    """
    return float(len(correlation) ** 2 / (correlation**2).sum())


def gamma_variance(nulls: Sequence[NullDraws]) -> float:
    """τ²: variance over redraws of the mean over blocks; the largest possible where redraws are not logged.

    Args:
        nulls: Of each seed.
    """
    return float(
        np.mean([null.sd.mean() ** 2 if null.draws is None else null.draws.mean(axis=1).var(ddof=1) for null in nulls])
    )


def _gamma_high(gamma: Array, null_variance: float | None) -> float:
    """Γ̄ + t(.975, S+3)·√(s̃²/S), s̃² = (4τ² + (S−1)s²)/(S+3); without τ² by the seeds alone, S−1 and s²."""
    seeds, prior = len(gamma), 0 if null_variance is None else PRIOR_SEEDS
    degrees = seeds - 1 + prior
    variance = (prior * (null_variance or 0.0) + (seeds - 1) * gamma.var(ddof=1)) / degrees
    return float(gamma.mean() + special.stdtrit(degrees, 1 - TAIL) * math.sqrt(variance / seeds))


def _half_width(spread: Array, seeds: int, degrees: float, tail: float) -> Array:
    if seeds < 2:
        return spread  # infinite
    return np.asarray(special.stdtrit(degrees, 1 - tail) * spread / math.sqrt(seeds))


def _p_values(mean: Array, nulls: Sequence[NullDraws]) -> tuple[Array, float]:
    """Of the mean over seeds, against means of independent redraws; normal where these are not logged."""
    draws = [null.draws for null in nulls if null.draws is not None]
    if len(draws) == len(nulls):
        fewest = min(len(values) for values in draws)
        joint = np.mean([values[:fewest] for values in draws], axis=0)
        pairs = zip(mean, joint.T, strict=True)
        return np.array([monte_carlo_p(float(seen), column) for seen, column in pairs]), 1 / (fewest + 1)
    centre = np.mean([null.mean for null in nulls], axis=0)
    sd = np.sqrt(np.sum([null.sd**2 for null in nulls], axis=0)) / len(nulls)
    z = np.divide(centre - mean, sd, out=np.where(mean > centre, -np.inf, np.inf), where=sd > 0)
    return np.asarray(special.ndtr(z)), 0.0


def reach(cosines: Array, nulls: Sequence[NullDraws]) -> Array:
    """Per seed, the least value that its weakest block lies clearly below: by two standard deviations of its null.

    Args:
        cosines: (seeds, blocks).
        nulls: Of each seed.
    """
    highest: Array = (cosines + CLEARLY * np.array([null.sd for null in nulls])).min(axis=1)
    return highest
