"""Fleets on a card: as many side by side as its memory holds.

Small kernels of several fleets fill a card together, from one process: those fleets take turns here. Where states are
large a group fills it by itself: each rule of such a fleet trains in a process of its own, and compiles there without
holding up the others.
"""

import os
from collections.abc import Iterator, Sequence

from creditscope.engine.groups import LARGE, by_rule, fleet_order
from creditscope.engine.start import default_model
from creditscope.models import MODELS
from creditscope.records import RunSpec
from creditscope.sweeps.memory import cut, fleet_bytes, free_bytes, state_entries
from creditscope.sweeps.processes import Hand, call_off, orders
from creditscope.sweeps.turns import Life, Workshop, take_turns
from creditscope.sweeps.worker import Order

# A process that compiles keeps several cores busy.
CORES_EACH = 5


def split_large(fleets: Sequence[Sequence[RunSpec]], workshop: Workshop) -> list[Sequence[RunSpec]]:
    """Fleets of large states by rule, in as many parts as there may be processes; one that was begun stays whole.

    Args:
        fleets: Their runs.
        workshop: Where they would be trained.
    """
    parts: list[Sequence[RunSpec]] = []
    for members in fleets:
        if not _is_large(members, workshop) or workshop.begun(members) is not None:
            parts.append(members)
            continue
        rules = list(by_rule(sorted(members, key=fleet_order)))
        count = min(len(rules), _processes())
        parts += [[run for runs in rules[part::count] for run in runs] for part in range(count)]
    return parts


def train_on_card(fleets: Sequence[Sequence[RunSpec]], workshop: Workshop, keeps: Sequence[int]) -> None:
    """Train every fleet to its end.

    Args:
        fleets: Their runs; from ``split_large``.
        workshop: Where and with what.
        keeps: Open files that further processes share.
    """
    large = [members for members in fleets if len(fleets) > 1 and _is_large(members, workshop)]
    homes = {spec.run_id: at % _processes() for at, members in enumerate(large) for spec in members}
    # They take seconds to begin: before it is found out what fits.
    hands = [Hand(keeps, workshop.device) for _ in set(homes.values())]
    try:
        with orders(workshop) as order:
            for wave in _waves(fleets, workshop):
                lives = [
                    _elsewhere(hand, [order(part) for part in wave if homes.get(part[0].run_id) == at], workshop)
                    for at, hand in enumerate(hands)
                ]
                take_turns([*lives, *(workshop.life(part) for part in wave if part[0].run_id not in homes)])
            for hand in hands:
                hand.dismiss()
    except BaseException:
        call_off(hands)
        raise


def _processes() -> int:
    return max(1, len(os.sched_getaffinity(0)) // CORES_EACH)


def _is_large(members: Sequence[RunSpec], workshop: Workshop) -> bool:
    """Whether a fleet has large states, and may be trained by another process: a user's own model cannot travel."""
    return _is_ours(members) and workshop.factory is default_model and state_entries(members[0]) > LARGE


def _is_ours(members: Sequence[RunSpec]) -> bool:
    return all(spec.model in MODELS for spec in members)


def _elsewhere(hand: Hand, given: Sequence[Order], workshop: Workshop) -> Life:
    """Fleets in another process, one after another."""
    for order in given:
        hand.take(order)
        done = False
        while not done:
            yield hand.pipe.poll
            while not done and hand.pipe.poll():
                done = hand.hear(workshop)


def _waves(fleets: Sequence[Sequence[RunSpec]], workshop: Workshop) -> Iterator[list[Sequence[RunSpec]]]:
    """Fleets that share the card, the largest first; one that does not fit is cut."""
    parts = [part for members in fleets for part in _fitting(members, workshop)]
    wave: list[Sequence[RunSpec]] = []
    taken = 0
    for members in sorted(parts, key=lambda part: -(_bytes(part) or 0)):
        size = _bytes(members)
        if wave and (size is None or taken + size > free_bytes(workshop.device)):
            yield wave
            wave, taken = [], 0
        wave.append(members)
        taken += size or 0
    if wave:
        yield wave


def _fitting(members: Sequence[RunSpec], workshop: Workshop) -> Sequence[Sequence[RunSpec]]:
    """A fleet in as few parts as fit; one that was begun keeps its company."""
    if not _is_ours(members) or workshop.begun(members) is not None:
        return [members]
    return cut(members, free_bytes(workshop.device), None)


def _bytes(members: Sequence[RunSpec]) -> int | None:
    """What a fleet takes; None where it is not known."""
    return fleet_bytes(members) if _is_ours(members) else None
