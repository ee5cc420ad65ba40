"""The difference of two accuracies with both of its errors: other seeds, and other test images. Arithmetic alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from creditscope.protocol.inference import sd_upper_limit, seeds_needed

LEVEL = 0.05
Array = NDArray[np.float64]
Images = Literal["joined", "bounded", "unknown"]
Kind = Literal["paired", "Welch", "one seed"]


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Args:
        accuracy: Of each seed, as a fraction of the test images.
        seeds: Which seeds; None where a log does not say.
        score: (seeds, images): what each image adds, whose mean is the accuracy; None where it was not logged.
        images: How many test images; None where it is not known.
        variance: An upper bound of the variance of a mean over the test images, where ``score`` is not known.
        strata: Class of each image where every class has its own share of the mean, as in a balanced accuracy.
    """

    accuracy: tuple[float, ...]
    seeds: tuple[int | None, ...] = ()
    score: Array | None = None
    images: int | None = None
    variance: float | None = None
    strata: NDArray[np.int64] | None = None

    def of(self, seeds: Sequence[int]) -> "Side":
        """The same side with some of its seeds, in that order.

        Args:
            seeds: Which.
        """
        at = [self.seeds.index(seed) for seed in seeds]
        score = None if self.score is None else self.score[at]
        return replace(self, accuracy=tuple(self.accuracy[i] for i in at), seeds=tuple(seeds), score=score)


@dataclass(frozen=True)
class Margin:
    """A difference of two accuracies over seeds.

    Args:
        mean: The estimate, a fraction.
        per_seed: The differences where both sides have the seed; else each accuracy less the other side's mean.
        rows: Which of our runs they belong to.
        seed_variance: Of the mean, over seeds; None from one seed.
        degrees: Of that variance.
        sd: Standard deviation per seed.
        seeds: How many, of the smaller side.
        kind: ``paired``, ``Welch`` or ``one seed``.
        image_variance: Of the mean, over test images; 0 where it is not known.
        images: How many test images; None where it is not known.
        joined: How the images were joined: from each image's result, from a bound, or not at all.
    """

    mean: float
    per_seed: tuple[float, ...]
    rows: tuple[int, ...]
    seed_variance: float | None
    degrees: float
    sd: float | None
    seeds: int
    kind: Kind
    image_variance: float
    images: int | None
    joined: Images

    def half(self, level: float = LEVEL) -> float:
        """Half the width of the two-sided interval: both errors joined; ∞ from one seed.

        Args:
            level: What it may miss, both sides together.
        """
        if self.seed_variance is None:
            return math.inf
        t, z = (float(quantile) for quantile in (special.stdtrit(self.degrees, 1 - level / 2), _z(level)))
        return math.sqrt(t**2 * self.seed_variance + z**2 * self.image_variance)

    def low(self, level: float = LEVEL) -> float:
        """Lower end of the interval.

        Args:
            level: What it may miss, both sides together.
        """
        return _exact(self.mean - self.half(level))

    def high(self, level: float = LEVEL) -> float:
        """Upper end of the interval.

        Args:
            level: What it may miss, both sides together.
        """
        return _exact(self.mean + self.half(level))

    def needed(self, threshold: float) -> "Needed | None":
        """What would make the interval clear a threshold, the estimate staying as it is; None where nothing would.

        Args:
            threshold: A fraction.
        """
        gap = abs(self.mean - threshold)
        if self.sd is None or gap == 0:
            return None
        for_images = _z(LEVEL) ** 2 * self.image_variance
        images = None
        if for_images >= gap**2 / 2 and self.images:
            # Seeds alone cannot, or hardly: leave half of the room to each.
            images = math.ceil(self.images * 2 * for_images / gap**2)
            for_images = gap**2 / 2
        room = math.sqrt(gap**2 - for_images)
        seeds = tuple(seeds_needed(room, sd) for sd in (self.sd, sd_upper_limit(self.sd, self.seeds)))
        return Needed(seeds[0], seeds[1], images)


@dataclass(frozen=True)
class Needed:
    """What would settle an open margin.

    Args:
        fewest: Seeds, if they spread as they did; None: more than anybody trains.
        most: Seeds, at the 80 % upper limit of that spread.
        images: Test images, where those at hand are too few; None: they do.
    """

    fewest: int | None
    most: int | None
    images: int | None


def margin(ours: Side, theirs: Side | float) -> Margin:
    """Compare two sides: paired on common seeds, Welch where there are fewer than two of them.

    Args:
        ours: The runs.
        theirs: What they are compared with; a bare number has no errors of its own.
    """
    if isinstance(theirs, float):
        return _margin(range(len(ours.accuracy)), [a - theirs for a in ours.accuracy], ours, None)
    common = common_seeds(ours, theirs)
    if len(common) >= 2 or len(common) == len(ours.accuracy) == len(theirs.accuracy):
        rows = [ours.seeds.index(seed) for seed in common]
        ours, theirs = ours.of(common), theirs.of(common)
        return _margin(rows, [a - b for a, b in zip(ours.accuracy, theirs.accuracy, strict=True)], ours, theirs)
    return unpaired(ours, theirs)


def common_seeds(ours: Side, theirs: Side) -> list[int]:
    """Seeds on both sides, each there once.

    Args:
        ours: One side.
        theirs: The other.
    """
    return [s for s in ours.seeds if s is not None and ours.seeds.count(s) == theirs.seeds.count(s) == 1]


def _margin(rows: Sequence[int], differences: Sequence[float], ours: Side, theirs: Side | None) -> Margin:
    n, each = len(differences), tuple(map(_exact, differences))
    mean = _exact(math.fsum(differences) / n)
    image_variance, joined = _images(ours, theirs, paired=True)
    if n < 2:
        return Margin(mean, each, tuple(rows), None, 0, None, n, "one seed", image_variance, ours.images, joined)
    sd = float(np.std(each, ddof=1)) if len(set(each)) > 1 else 0.0
    return Margin(mean, each, tuple(rows), sd**2 / n, n - 1, sd, n, "paired", image_variance, ours.images, joined)


def unpaired(ours: Side, theirs: Side) -> Margin:
    """Welch's comparison of two sides, all of their seeds.

    Args:
        ours: The runs.
        theirs: What they are compared with.
    """
    a, b = np.array(ours.accuracy), np.array(theirs.accuracy)
    mean = _exact(math.fsum(a) / len(a) - math.fsum(b) / len(b))
    each = tuple(_exact(value - math.fsum(b) / len(b)) for value in a)
    image_variance, joined = _images(ours, theirs)
    n, rows = min(len(a), len(b)), tuple(range(len(a)))
    if n < 2:
        return Margin(mean, each, rows, None, 0, None, n, "one seed", image_variance, ours.images, joined)
    parts = [float(side.var(ddof=1)) / len(side) if np.ptp(side) > 0 else 0.0 for side in (a, b)]
    total = sum(parts)
    below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (a, b), strict=True))
    degrees = total**2 / below if below else n - 1
    sd = math.sqrt(parts[0] * len(a) + parts[1] * len(b))
    return Margin(mean, each, rows, total, degrees, sd, n, "Welch", image_variance, ours.images, joined)


def _images(ours: Side, theirs: Side | None, paired: bool = False) -> tuple[float, Images]:
    """Variance of the margin over test images, and how it is known."""
    sides = [ours] if theirs is None else [ours, theirs]
    scores = [side.score for side in sides if side.score is not None]
    if len(scores) == len(sides) and len({score.shape[1] for score in scores}) == 1:
        if ours.strata is not None:
            scores = [_within(score, ours.strata) for score in scores]
        if paired:
            return image_variance(scores[0] - scores[1] if theirs is not None else scores[0]), "joined"
        mean, noise = scores[0].mean(axis=0), residual(scores[0]) / len(scores[0])
        if len(scores) > 1:
            mean, noise = mean - scores[1].mean(axis=0), noise + residual(scores[1]) / len(scores[1])
        return max(0.0, float(mean.var(ddof=1)) - noise) / len(mean), "joined"
    bounds = [side.variance for side in sides if side.variance is not None]
    return (sum(bounds), "bounded") if len(bounds) == len(sides) else (0.0, "unknown")


def _within(score: Array, strata: NDArray[np.int64]) -> Array:
    """What is left of each image's score when that of its class is taken away: class sizes are fixed, not drawn.

    Scaled by √(n/(n−1)) in a class of n, so that the variance is unbiased there; a class of one image stays as it is.
    """
    counts = np.bincount(strata)[strata]
    alone, scale = counts == 1, np.sqrt(counts / np.maximum(counts - 1, 1))
    classes = [(np.bincount(strata, row) / np.maximum(np.bincount(strata), 1))[strata] for row in score]
    return np.stack([np.where(alone, row, (row - mean) * scale) for row, mean in zip(score, classes, strict=True)])


def image_variance(score: Array) -> float:
    """Variance over test images of a mean over seeds and images: max(0, MS_images − MS_residual)/(S·N).

    The mean squares are those of a two-way table without repetition. What a seed does to a single image is in the
    variance over seeds already.

    Args:
        score: (seeds, images).
    """
    seeds, images = score.shape
    between = seeds * float(score.mean(axis=0).var(ddof=1))
    return float(max(0.0, between - residual(score)) / (seeds * images))


def residual(score: Array) -> float:
    """MS_residual of a two-way table of seeds and images; 0 from one seed, which leaves nothing to tell it by.

    Args:
        score: (seeds, images).
    """
    seeds, images = score.shape
    if seeds < 2:
        return 0.0
    rest = score - score.mean(axis=0) - score.mean(axis=1, keepdims=True) + score.mean()
    return float((rest**2).sum() / ((seeds - 1) * (images - 1)))


def _z(level: float) -> float:
    return float(special.ndtri(1 - level / 2))


def _exact(value: float) -> float:
    """Without the last bits that decimal fractions leave: .41 − .39 is .02."""
    return round(value, 12) + 0.0  # no negative zero
