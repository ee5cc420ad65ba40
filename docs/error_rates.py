"""How often the checks of ``standard`` err: made-up runs whose truth is known, judged by the checks' own functions."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from creditscope.protocol.checks.depth import HARM, Depth
from creditscope.protocol.checks.direction import Direction
from creditscope.protocol.checks.learning import Learning
from creditscope.protocol.checks.tested import Tested
from creditscope.protocol.evidence import Evidence, Grade, Ruling
from creditscope.protocol.margins import Margin, Side, margin
from creditscope.protocol.opponents import Opponent
from creditscope.protocol.pooling import NullDraws, pool

PP = 100.0
CLASSES = 10
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """How often a check passed and fired.

    Args:
        trials: How many sets of runs were judged.
        passes: In how many it passed.
        fires: In how many it fired.
    """

    trials: int
    passes: int
    fires: int

    @classmethod
    def of(cls, rulings: Iterator[Ruling], trials: int) -> "Rates":
        """Count what a check ruled."""
        said = list(islice(rulings, trials))
        return cls(trials, said.count(Ruling.PASSES), said.count(Ruling.FIRES))

    def share(self, ruling: str) -> float:
        """The share of ``passes`` or ``fires``."""
        return getattr(self, ruling) / self.trials

    def error(self, ruling: str) -> float:
        """Monte-Carlo standard error of that share; of none at all, that of one."""
        p = max(getattr(self, ruling), 1) / self.trials
        return math.sqrt(p * (1 - p) / self.trials)


def allowed(promise: float, trials: int) -> float:
    """The largest share that so many trials can show where the true rate is the promised one: three standard errors.

    Args:
        promise: The promised rate.
        trials: How many.
    """
    return promise + 3 * math.sqrt(promise * (1 - promise) / trials)


@dataclass(frozen=True)
class Credits:
    """A method whose true cosines are known, over seeds.

    Args:
        cosine: The true cosine, of all tested blocks or of each.
        null_sd: Standard deviation of a block's cosine over redraws of the feedback.
        spread: Standard deviation over seeds, in units of ``null_sd``.
        seeds: How many.
        blocks: How many are tested.
        correlation: Of the blocks over redraws.
        over_seeds: Of the blocks over seeds; None: as over redraws.
        redraws: K.
        uneven: How many times as wide as the others the last block spreads over seeds; it has ``spread``.
        tails: Degrees of freedom of Student's t, from which seeds are drawn; None: normal.
    """

    cosine: float | tuple[float, ...] = 0.0
    null_sd: float = 0.02
    spread: float = 1.0
    seeds: int = 3
    blocks: int = 3
    correlation: float = 0.0
    over_seeds: float | None = None
    redraws: int = 199
    uneven: float = 1.0
    tails: int | None = None

    def rulings(self, seed: int = 0) -> Iterator[Ruling]:
        """What direction says of one set of runs after the other."""
        check, rng = Direction(), np.random.default_rng(seed)
        over_seeds = self.correlation if self.over_seeds is None else self.over_seeds
        names = tuple(range(1, self.blocks + 1))
        widths = np.array([*[self.spread / self.uneven] * (self.blocks - 1), self.spread])
        while True:
            draws = self.null_sd * _correlated(rng, (self.seeds, self.redraws, self.blocks), self.correlation)
            moved = self.null_sd * widths * _correlated(rng, (self.seeds, self.blocks), over_seeds)
            if self.tails is not None:  # of variance 1, one draw a seed
                moved *= np.sqrt((self.tails - 2) / rng.chisquare(self.tails, (self.seeds, 1)))
            cosines, nulls = self.cosine + moved, tuple(map(NullDraws.of, draws))
            tested = Tested(names, (), cosines, nulls, pool(cosines, nulls))
            yield check._evidence(tested, complete=True).ruling(check.threshold, check.side)

    def rates(self, trials: int, seed: int = 0) -> Rates:
        """How often direction passes and fires."""
        return Rates.of(self.rulings(seed), trials)


def _correlated(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> Array:
    """Standard normal numbers, correlated along the last axis."""
    common, own = rng.standard_normal((*shape[:-1], 1)), rng.standard_normal(shape)
    return math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own


@dataclass(frozen=True)
class Accuracies:
    """A method and what it is compared with, whose accuracies on all images that there are, are known.

    An image is answered rightly where a normal number exceeds a bound. It is the sum of what the image is to every
    net, of what it is to the nets of one method, and of what it is to one net alone.

    Args:
        margin: True margin over every opponent, a fraction; over chance, for ``learning``.
        seeds: How many, on both sides.
        seed_sd: Standard deviation over seeds of a run's true accuracy, a fraction.
        images: Test images, drawn anew in every trial.
        opponents: How many, all equally strong.
        base: True accuracy of an opponent.
        shared: Share of the variance that an image is to every net.
        method: Share that it is to the nets of one method.
        logged: Whether the result on each image is logged.
        unequal: Whether the classes of the test images are drawn too, so that balanced accuracy is judged.
    """

    margin: float = 0.02
    seeds: int = 3
    seed_sd: float = 0.003
    images: int = 2000
    opponents: int = 1
    base: float = 0.4
    shared: float = 0.5
    method: float = 0.2
    logged: bool = True
    unequal: bool = False

    def depth(self, seed: int = 0) -> Iterator[Evidence]:
        """The evidence of depth in one set of runs after the other, on a task that rewards depth."""
        check, rng = Depth(), np.random.default_rng(seed)
        while True:
            common = rng.standard_normal(self.images)
            ours = self._side(rng, common, self.base + self.margin)
            found = [margin(ours, self._side(rng, common, self.base)) for _ in range(self.opponents)]
            yield check._intervals([_opponent(each) for each in found])

    def learning(self, seed: int = 0) -> Iterator[Evidence]:
        """The evidence of learning: accuracy against chance."""
        rng, chance = np.random.default_rng(seed), 1 / CLASSES
        while True:
            ours = self._side(rng, rng.standard_normal(self.images), chance + self.margin)
            found = margin(self._balanced(ours, rng) if self.unequal else ours, chance)
            yield Evidence(PP * found.mean, PP * found.low(), PP * found.high(), Grade.EXACT)

    def depth_rates(self, trials: int, seed: int = 0) -> Rates:
        """How often depth passes and fires."""
        return Rates.of((each.ruling(Depth.threshold, Depth.side) for each in self.depth(seed)), trials)

    def harm_rates(self, trials: int, seed: int = 0) -> Rates:
        """How often a run is called worse than its opponent."""
        return Rates.of((each.ruling(HARM, Depth.side) for each in self.depth(seed)), trials)

    def learning_rates(self, trials: int, seed: int = 0) -> Rates:
        """How often learning passes and fires."""
        return Rates.of((each.ruling(Learning.threshold, Learning.side) for each in self.learning(seed)), trials)

    def _side(self, rng: np.random.Generator, common: Array, accuracy: float) -> Side:
        true = accuracy + self.seed_sd * rng.standard_normal(self.seeds)
        # A run beyond certainty would shift the mean: nobody asks for one.
        assert 0 < true.min() <= true.max() < 1
        own = 1 - self.shared - self.method
        hard = math.sqrt(self.shared) * common + math.sqrt(self.method) * rng.standard_normal(self.images)
        each = hard + math.sqrt(own) * rng.standard_normal((self.seeds, self.images))
        score = (each < ndtri(true)[:, None]).astype(float)
        accuracies, seeds = tuple(score.mean(axis=1).tolist()), tuple(range(self.seeds))
        if self.logged:
            return Side(accuracies, seeds, score, self.images)
        mean = float(np.mean(accuracies))
        return Side(accuracies, seeds, None, self.images, mean * (1 - mean) / self.images)

    def _balanced(self, side: Side, rng: np.random.Generator) -> Side:
        """The same answers, weighted by class: classes are drawn, and every one has the same share of the mean."""
        labels = rng.integers(0, CLASSES, self.images)
        counts = np.bincount(labels, minlength=CLASSES)
        assert side.score is not None
        score = side.score * (self.images / (CLASSES * counts[labels]))
        return replace(side, accuracy=tuple(score.mean(axis=1).tolist()), score=score, strata=labels)


def _opponent(found: Margin) -> Opponent:
    return Opponent("opponent", 0.0, found, (), (), True, "frozen")


def seen(says: Callable[[float], float], low: float, high: float, share: float = 0.8, steps: int = 7) -> float | None:
    """The effect between two at which a share of trials says what it should; None where not even ``high`` does it.

    Args:
        says: The share at an effect; it rises from ``low`` to ``high``, which may be the smaller of the two.
        low: An effect too small to be seen.
        high: The largest that is tried.
        share: Which share.
        steps: Halvings of the range.
    """
    if says(high) < share:
        return None
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if says(middle) >= share else (middle, high)
    return high
