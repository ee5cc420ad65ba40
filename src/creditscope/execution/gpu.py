"""Fleets on a GPU: as many side by side as its memory holds.

They take turns in one process, where the kernels of several fill the GPU together.
"""

from collections.abc import Iterator, Sequence

from creditscope.engine.memory import fleet_bytes, free_bytes, split
from creditscope.execution.turns import TrainContext, take_turns
from creditscope.models import MODELS
from creditscope.records import RunSpec


def train_on_gpu(fleets: Sequence[Sequence[RunSpec]], context: TrainContext) -> None:
    """Train every fleet to its end.

    Args:
        fleets: Their runs.
        context: Where and with what.
    """
    parts = [part for members in fleets for part in _fitting(members, context)]
    # The largest first: it takes longest.
    for wave in _waves(sorted(parts, key=lambda part: -(_bytes(part) or 0)), context):
        take_turns([context.turns_of(members) for members in wave])


def _fitting(members: Sequence[RunSpec], context: TrainContext) -> Sequence[Sequence[RunSpec]]:
    """A fleet in as few parts as fit; one that was begun keeps its company."""
    if _bytes(members) is None or context.begun(members) is not None:
        return [members]
    return split(members, free_bytes(context.device), None)


def _waves(fleets: Sequence[Sequence[RunSpec]], context: TrainContext) -> Iterator[list[Sequence[RunSpec]]]:
    """Fleets that share the GPU."""
    wave: list[Sequence[RunSpec]] = []
    taken = 0
    for members in fleets:
        size = _bytes(members)
        if wave and (size is None or taken + size > free_bytes(context.device)):
            yield wave
            wave, taken = [], 0
        wave.append(members)
        taken += size or 0
    if wave:
        yield wave


def _bytes(members: Sequence[RunSpec]) -> int | None:
    """What a fleet of our own models takes; None where it is not known."""
    known = all(spec.model in MODELS for spec in members)
    return fleet_bytes(members) if known else None
