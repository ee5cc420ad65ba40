"""What a judge knows of the accuracy of some runs: each seed's, image by image where that was logged, and chance."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from creditscope.errors import NotMeasured
from creditscope.protocol.cells import accuracy_of
from creditscope.protocol.margins import Side
from creditscope.protocol.readings import shares_of
from creditscope.quantities.per_epoch import BALANCED_ACCURACY
from creditscope.records.log import RunLog
from creditscope.records.spec import RunSpec

# An accuracy that was logged in float32 differs from that of its images by no more than this.
ROUNDING = 1e-6
Array = NDArray[np.float64]


def counts_of(spec: RunSpec) -> tuple[int, ...] | None:
    """Test images of each class; None where the log does not say.

    Args:
        spec: The run.
    """
    counts = spec.data.class_counts if spec.data is not None else None
    return counts if counts and sum(counts) else None


def is_unequal(spec: RunSpec) -> bool:
    """Whether classes differ by more than 10 % in size: then balanced accuracy is judged.

    Args:
        spec: The run.
    """
    return spec.data is not None and spec.data.unequal


def chance(spec: RunSpec) -> float | None:
    """Majority-class rate of the test labels; 1/classes when only their number is known; None when neither is.

    Args:
        spec: The run.
    """
    counts = counts_of(spec)
    if counts:
        return max(counts) / sum(counts)
    return 1 / spec.classes if spec.classes else None


def judged_chance(spec: RunSpec) -> float | None:
    """Chance of the accuracy that is judged: 1/K where that is balanced; None where the classes are not known.

    Args:
        spec: The run.
    """
    return 1 / sum(count > 0 for count in counts_of(spec) or ()) if is_unequal(spec) else chance(spec)


def side_of(runs: Sequence[RunLog]) -> tuple[tuple[RunLog, ...], Side] | None:
    """The runs with an accuracy, and it: balanced where classes are unequal, with what each test image adds.

    Args:
        runs: Of one cell.

    Returns:
        None where no run has an accuracy.
    """
    known = [(run, value) for run in runs if (value := judged_accuracy(run)) is not None]
    if not known:
        return None
    _refuse_two_ends([run for run, _ in known])
    seeds = tuple(run.spec.seed for run, _ in known)
    score, accuracy = _score([run for run, _ in known]), tuple(value for _, value in known)
    if score is not None:
        _refuse_others(known, score)
        accuracy = tuple(float(row.mean()) for row in score)
    images = {run.end.n_test if run.end is not None else None for run, _ in known}
    n = (images.pop() or None) if len(images) == 1 else None
    spec = known[0][0].spec
    if score is None and n is not None and not is_unequal(spec):
        accuracy = tuple(_as_count(value, n) for value in accuracy)
    strata = _labels(runs) if is_unequal(spec) else None
    bound = None if n is None else _bound(spec, accuracy, n)
    return tuple(run for run, _ in known), Side(accuracy, seeds, score, n, bound, strata)


def judged_accuracy(run: RunLog) -> float | None:
    """Accuracy at the last logged epoch, balanced where classes are unequal.

    Args:
        run: The run.
    """
    return BALANCED_ACCURACY.last(run) if is_unequal(run.spec) else accuracy_of(run)


def judged_mean(runs: Sequence[RunLog]) -> float | None:
    """Its mean over the runs that have one.

    Args:
        runs: Of one cell.
    """
    known = [value for run in runs if (value := judged_accuracy(run)) is not None]
    return float(np.mean(known)) if known else None


def same_images(*groups: Sequence[RunLog]) -> bool:
    """Whether all runs were tested on the same images, as far as their logs say.

    Args:
        groups: Runs.
    """
    return len({run.spec.data.hash_test if run.spec.data else None for runs in groups for run in runs}) == 1


def _refuse_others(known: Sequence[tuple[RunLog, float]], score: Array) -> None:
    """The results of single images must be those of the accuracy at the last logged epoch."""
    for (run, value), row in zip(known, score, strict=True):
        if abs(value - float(row.mean())) > ROUNDING:
            raise NotMeasured(
                f"{run.name}: its images were right in {row.mean():.4f} of all cases, its last epoch says {value:.4f}"
            )


def _refuse_two_ends(runs: Sequence[RunLog]) -> None:
    """A log that we wrote says one thing of its last epoch."""
    for run in runs:
        last, end = accuracy_of(run), run.end
        if end is None or end.test_accuracy is None or last is None or run.spec.origin == "import":
            continue
        if run.last is not None and run.last.epoch == end.epoch and abs(last - end.test_accuracy) > ROUNDING:
            raise NotMeasured(f"{run.name}: its last epoch says {last:.4f}, its end {end.test_accuracy:.4f}")


def _as_count(accuracy: float, images: int) -> float:
    """The share that a whole number of right images is, where rounding alone sets it apart."""
    count = round(accuracy * images) / images
    return count if abs(accuracy - count) <= ROUNDING else accuracy


def _score(runs: Sequence[RunLog]) -> Array | None:
    """(seeds, images): correctness, weighted so that its mean is the accuracy that is judged."""
    sizes = {run.end.n_test if run.end is not None else None for run in runs}
    n = sizes.pop() if len(sizes) == 1 else None
    shares = [share for run in runs if (share := shares_of(run)) is not None]
    if not n or len(shares) < len(runs) or not same_images(runs):
        return None
    score = np.array(shares)
    if not is_unequal(runs[0].spec):
        return score
    labels = _labels(runs)
    if labels is None or len(labels) != n:
        return None
    counts = np.bincount(labels)
    return np.asarray(score * (n / (np.count_nonzero(counts) * counts[labels])))


def _labels(runs: Sequence[RunLog]) -> NDArray[np.int64] | None:
    for run in runs:
        if run.end is not None and run.end.labels is not None:
            return np.frombuffer(bytes.fromhex(run.end.labels), dtype=">u2").astype(np.int64)
    return None


def _bound(spec: RunSpec, accuracy: Sequence[float], images: int) -> float:
    """The largest variance over test images that such an accuracy can have."""
    counts = counts_of(spec)
    if is_unequal(spec) and counts:
        return sum(1 / (4 * count) for count in counts if count) / sum(count > 0 for count in counts) ** 2
    mean = float(np.mean(accuracy))
    return mean * (1 - mean) / images
