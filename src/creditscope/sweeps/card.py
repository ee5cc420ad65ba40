"""Fleets on a card: as many side by side as its memory holds.

They take turns in one process, where the kernels of several fill the card together.
"""

from collections.abc import Iterator, Sequence

from creditscope.models import MODELS
from creditscope.records import RunSpec
from creditscope.sweeps.memory import cut, fleet_bytes, free_bytes
from creditscope.sweeps.turns import Workshop, take_turns


def train_on_card(fleets: Sequence[Sequence[RunSpec]], workshop: Workshop) -> None:
    """Train every fleet to its end.

    Args:
        fleets: Their runs.
        workshop: Where and with what.
    """
    parts = [part for members in fleets for part in _fitting(members, workshop)]
    # The largest first: it takes longest.
    for wave in _waves(sorted(parts, key=lambda part: -(_bytes(part) or 0)), workshop):
        take_turns([workshop.life(members) for members in wave])


def _fitting(members: Sequence[RunSpec], workshop: Workshop) -> Sequence[Sequence[RunSpec]]:
    """A fleet in as few parts as fit; one that was begun keeps its company."""
    if _bytes(members) is None or workshop.begun(members) is not None:
        return [members]
    return cut(members, free_bytes(workshop.device), None)


def _waves(fleets: Sequence[Sequence[RunSpec]], workshop: Workshop) -> Iterator[list[Sequence[RunSpec]]]:
    """Fleets that share the card."""
    wave: list[Sequence[RunSpec]] = []
    taken = 0
    for members in fleets:
        size = _bytes(members)
        if wave and (size is None or taken + size > free_bytes(workshop.device)):
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
