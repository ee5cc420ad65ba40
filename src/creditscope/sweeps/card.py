"""Fleets on a card: as many side by side as its memory holds.

Those of one model take turns in one process, where small kernels of several fill the card together. Every other model
has a process of its own: compiling and building hold up the process that does them, and nobody else.
"""

from collections.abc import Iterator, Sequence

from creditscope.engine.start import default_model
from creditscope.models import MODELS
from creditscope.records import RunSpec
from creditscope.sweeps.memory import cut, fleet_bytes, free_bytes
from creditscope.sweeps.processes import Hand, call_off, orders
from creditscope.sweeps.turns import Life, Workshop, take_turns
from creditscope.sweeps.worker import Order

Fleets = list[Sequence[RunSpec]]


def train_on_card(fleets: Sequence[Sequence[RunSpec]], workshop: Workshop, keeps: Sequence[int]) -> None:
    """Train every fleet to its end.

    Args:
        fleets: Their runs.
        workshop: Where and with what.
        keeps: Open files that further processes share.
    """
    parts = [part for members in fleets for part in _fitting(members, workshop)]
    with orders(workshop) as order:
        for wave in _waves(sorted(parts, key=lambda part: -(_bytes(part) or 0)), workshop):
            here, *others = _homes(wave, workshop)
            # The others first: a process takes seconds to begin.
            lives = [_elsewhere(order(away), workshop, keeps) for away in others]
            take_turns([*lives, *map(workshop.life, here)])


def _fitting(members: Sequence[RunSpec], workshop: Workshop) -> Sequence[Sequence[RunSpec]]:
    """A fleet in as few parts as fit; one that was begun keeps its company."""
    if _bytes(members) is None or workshop.begun(members) is not None:
        return [members]
    return cut(members, free_bytes(workshop.device), None)


def _waves(fleets: Sequence[Sequence[RunSpec]], workshop: Workshop) -> Iterator[Fleets]:
    """Fleets that share the card."""
    wave: Fleets = []
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


def _homes(wave: Fleets, workshop: Workshop) -> list[Fleets]:
    """The fleets of each process; this one's, which are those of the most runs, come first."""
    if workshop.factory is not default_model:  # a user's own cannot travel
        return [wave]
    homes: dict[tuple[str | None, str], Fleets] = {}
    for members in wave:
        homes.setdefault((members[0].model, workshop.load(members[0]).name), []).append(members)
    return sorted(homes.values(), key=lambda home: -sum(map(len, home)))


def _elsewhere(order: Order, workshop: Workshop, keeps: Sequence[int]) -> Life:
    """Fleets in a process of their own."""
    hand = Hand(keeps, workshop.device)
    try:
        hand.take(order)
        while True:
            yield hand.pipe.poll
            while hand.pipe.poll():
                if hand.hear(workshop):
                    hand.dismiss()
                    return
    except BaseException:
        call_off([hand])
        raise
