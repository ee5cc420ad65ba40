"""The two protocols: which checks, with which thresholds, under which version."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from creditscope.errors import BadInput, did_you_mean
from creditscope.protocol.check import Check
from creditscope.protocol.checks.advisory import DriftCheck, RepresentationCheck
from creditscope.protocol.checks.depth import DepthInterval, DepthPoint
from creditscope.protocol.checks.direction import Direction
from creditscope.protocol.checks.fidelity import FIDELITY_FLOOR, FidelityCheck
from creditscope.protocol.checks.movement import MovementCheck
from creditscope.protocol.checks.reference import ReferenceGain, ReferenceNorm
from creditscope.protocol.checks.scale import Scale

VERSION = "1"
# The published floor is 1e-7 on gradients mean-reduced over 128 samples; ours are sum-reduced.
REFERENCE_FLOOR = 1e-7 * 128
DEFAULTS: dict[str, float] = {
    "scale": 50.0,
    "reference": REFERENCE_FLOOR,
    "depth": 2.0,
    "fidelity": FIDELITY_FLOOR,
    "direction": 0.05,
    "movement": 1e-4,
    "drift": 0.30,
    "representation": 0.0,
}
_RANGES: dict[str, tuple[float, float]] = {
    "scale": (0.0, math.inf),
    "reference": (0.0, math.inf),
    "fidelity": (0.0, 1.0),
    "direction": (-1.0, 1.0),
    "movement": (0.0, math.inf),
    "drift": (0.0, 1.0),
}
_REQUIRED: dict[str, tuple[type[Check], ...]] = {
    "published": (Scale, ReferenceNorm, DepthPoint),
    "standard": (Scale, ReferenceGain, DepthInterval, FidelityCheck, Direction, MovementCheck),
}
_ADVISORY: tuple[type[Check], ...] = (DriftCheck, RepresentationCheck)
NAMES = tuple(_REQUIRED)


@dataclass(frozen=True)
class Protocol:
    """A named, versioned list of checks.

    Args:
        name: ``standard`` or ``published``.
        version: Changes whenever a definition or a default does.
        required: The checks that make the verdict.
        advisory: Those that do not.
        overrides: Thresholds that a user set.
    """

    name: str
    version: str
    required: tuple[Check, ...]
    advisory: tuple[Check, ...]
    overrides: tuple[tuple[str, float], ...] = ()

    @property
    def checks(self) -> tuple[Check, ...]:
        """All of them, required first."""
        return (*self.required, *self.advisory)

    @property
    def thresholds(self) -> dict[str, float]:
        """Threshold by check."""
        return {check.name: check.threshold for check in self.checks}


def protocol_named(name: str, thresholds: Mapping[str, float] | None = None) -> Protocol:
    """Build a preset, with some thresholds of one's own.

    Args:
        name: ``standard`` or ``published``.
        thresholds: Threshold by check name; recorded in the audit.
    """
    if name not in _REQUIRED:
        raise BadInput(f"unknown protocol {name!r}; {did_you_mean(name, NAMES)}")
    given = dict(thresholds or {})
    known = [check.name for check in (*_REQUIRED[name], *_ADVISORY)]
    for key, value in given.items():
        if key not in known:
            raise BadInput(f"protocol {name!r} has no check {key!r} to set; {did_you_mean(key, known)}")
        low, high = _RANGES.get(key, (-math.inf, math.inf))
        if not (math.isfinite(value) and low <= value <= high):
            raise BadInput(f"threshold {key} must be a finite number in [{low:g}, {high:g}], got {value}")
    chosen = DEFAULTS | given
    return Protocol(
        name=name,
        version=VERSION,
        required=tuple(check(chosen[check.name]) for check in _REQUIRED[name]),
        advisory=tuple(check(chosen[check.name]) for check in _ADVISORY),
        overrides=tuple(sorted(given.items())),
    )
