"""What the checks on accuracies over seeds share: their grade, k of n, what would settle them, the single seeds."""

import math
from collections.abc import Sequence

from creditscope.protocol.evidence import Evidence, Grade, Ruling, SeedOutcome
from creditscope.protocol.margins import Margin
from creditscope.protocol.text import counted
from creditscope.records.log import RunLog


def grade_of(found: Margin) -> Grade:
    """How good a margin is as evidence: exact with the result on each image, bounded without.

    Args:
        found: The margin.
    """
    return {"joined": Grade.EXACT, "bounded": Grade.BOUNDED, "unknown": Grade.PROXY}[found.joined]


def images_text(found: Margin) -> list[str]:
    """How the error over test images was taken in.

    Args:
        found: The margin.
    """
    if found.joined == "unknown":
        return ["the error over test images is not in the interval: their number is not logged"]
    if found.joined == "bounded":
        return [f"per-image results are not logged: the error over {found.images} test images is bounded from above"]
    return []


def k_of_n(found: Margin, limit: float, below: bool) -> str:
    """On how many seeds the value itself lies on the side that the sentence names.

    Args:
        found: The margin.
        limit: The threshold, a fraction.
        below: Whether the sentence says that it lies below.
    """
    if found.seeds < 2:
        return ""
    above = sum(value >= limit for value in found.per_seed)
    n = len(found.per_seed)
    k, side = (n - above, "below") if below else (above, "at or above")
    return f" ({side} it on {k} of {counted(n, 'seed')})"


def needed_text(found: Margin, limit: float, what: str) -> str:
    """What would settle an open margin.

    Args:
        found: The margin.
        limit: The threshold, a fraction.
        what: Whose seeds.
    """
    if found.kind == "one seed":
        return f"train at least 3 seeds {what}"
    needed = found.needed(limit)
    if needed is None:
        return f"more seeds {what}: the estimate lies at the threshold itself"
    if needed.fewest is None:
        return f"more seeds {what} than anybody trains: the estimate lies too near the threshold"
    fewest = max(needed.fewest, found.seeds)
    most = math.inf if needed.most is None else max(needed.most, found.seeds)
    if most == found.seeds and needed.images is not None:
        return f"test the {most} seeds {what} on about {needed.images:,} images"
    to = "" if most == fewest else " to many more" if math.isinf(most) else f" to {most}"
    images = f", tested on about {needed.images:,} images" if needed.images is not None else ""
    return f"train about {fewest}{to} seeds {what}{images}"


def point_seeds(runs: Sequence[RunLog], found: Margin, scale: float) -> tuple[SeedOutcome, ...]:
    """Each seed's own value. One seed alone decides nothing: its outcome is undecided.

    Args:
        runs: The runs that were compared.
        found: The margin.
        scale: Turns a fraction into the check's unit.
    """
    members = [runs[row] for row in found.rows]
    return tuple(
        SeedOutcome(
            run.spec.seed,
            run.name,
            run.last.epoch if run.last else None,
            Ruling.UNDECIDED,
            Evidence(scale * value, -math.inf, math.inf, grade_of(found)),
        )
        for run, value in zip(members, found.per_seed, strict=True)
    )


def without(runs: Sequence[RunLog], compared: Sequence[RunLog]) -> list[str]:
    """The names of runs that were left out of a comparison.

    Args:
        runs: All runs of a cell.
        compared: Those that were compared.
    """
    return [run.name for run in runs if not any(run is other for other in compared)]
