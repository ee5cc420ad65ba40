"""Protocols: which checks, with which thresholds, under which version; those that ship, and checks added to them."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from creditscope.errors import BadInput, did_you_mean
from creditscope.protocol.check import Check
from creditscope.protocol.checks import version1
from creditscope.protocol.checks.advisory import DriftCheck, IdleCheck, RepresentationCheck
from creditscope.protocol.checks.depth import Depth
from creditscope.protocol.checks.direction import Direction
from creditscope.protocol.checks.fidelity import FidelityCheck
from creditscope.protocol.checks.ladder import LadderCheck
from creditscope.protocol.checks.learning import Learning
from creditscope.protocol.checks.movement import MovementCheck
from creditscope.protocol.checks.reference import ReferenceGain, ReferenceNorm
from creditscope.protocol.checks.scale import Scale
from creditscope.protocol.text import listed
from creditscope.records.rule_card import Family
from creditscope.registry import CHECK_GROUP, Registry

_Checks = tuple[type[Check], ...]


@dataclass(frozen=True)
class _Ships:
    """A protocol that ships.

    Args:
        version: Of its definitions.
        required: The checks that make its verdict.
        advisory: Those that do not.
        families: The families that a check applies to, where it does not apply to all.
    """

    version: str
    required: _Checks
    advisory: _Checks
    families: Mapping[str, tuple[Family, ...]] = field(default_factory=dict)


_ADVISORY: _Checks = (DriftCheck, RepresentationCheck)
_SHIPS = {
    "published": _Ships("1", (Scale, ReferenceNorm, version1.DepthPoint), _ADVISORY),
    "standard": _Ships(
        "2",
        (Learning, Scale, ReferenceGain, FidelityCheck, Direction, Depth, MovementCheck, LadderCheck),
        (*_ADVISORY, IdleCheck),
        {
            "reference": ("signal",),
            "fidelity": ("signal", "update"),
            "direction": ("signal", "update"),
            "ladder": ("objective",),
        },
    ),
    "standard@1": _Ships(
        "1",
        (Scale, ReferenceGain, version1.DepthInterval, version1.FidelityAsLogged, version1.Direction, MovementCheck),
        _ADVISORY,
    ),
}
NAMES = tuple(_SHIPS)
CHECKS = Registry(
    "check",
    CHECK_GROUP,
    {
        check.name: f"{check.__module__}:{check.__name__}"
        for check in (*_SHIPS["standard"].required, *_SHIPS["standard"].advisory)
    },
)
# It is used in --set NAME=VALUE, in headings and in the addresses within a page.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Protocol:
    """A named, versioned list of checks.

    ``protocol_named("standard").with_checks(required=[MyCheck()])`` is the standard with one more; it says so wherever
    its name stands.

    Args:
        name: ``standard``, ``published``, or a name of your own.
        version: Changes whenever a definition or a default does.
        required: The checks that make the verdict.
        advisory: Those that do not.
        families: The families that a check applies to, by its name; one that is not named applies to all.
    """

    name: str
    version: str
    required: tuple[Check, ...]
    advisory: tuple[Check, ...] = ()
    families: Mapping[str, tuple[Family, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for check in self.checks:
            _refuse_unusable(check)
        names = [check.name for check in self.checks]
        if twice := [name for name in names if names.count(name) > 1]:
            raise BadInput(f"two checks are called {twice[0]!r}; give one of them another name")
        if not self.required:
            raise BadInput(f"protocol {self.name!r} requires no check; a verdict needs at least one")

    @property
    def checks(self) -> tuple[Check, ...]:
        """All of them, required first."""
        return (*self.required, *self.advisory)

    @property
    def thresholds(self) -> dict[str, float]:
        """Threshold by check."""
        return {check.name: check.threshold for check in self.checks}

    @property
    def overrides(self) -> tuple[tuple[str, float], ...]:
        """The thresholds that are not those of their class."""
        usual = {check.name: getattr(type(check), "threshold", check.threshold) for check in self.checks}
        return tuple(sorted((name, value) for name, value in self.thresholds.items() if value != usual[name]))

    @property
    def added(self) -> tuple[Check, ...]:
        """The checks that the protocol which ships under this name does not have; none under a name of your own."""
        ships = _ships(self)
        return tuple(check for check, role in self._roles if ships and (type(check), role) not in ships)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The checks that it lacks, compared with the protocol which ships under this name."""
        held = {(type(check), role) for check, role in self._roles}
        return tuple(check.name for check, role in _ships(self) if (check, role) not in held)

    @property
    def _roles(self) -> list[tuple[Check, bool]]:
        return [*((check, True) for check in self.required), *((check, False) for check in self.advisory)]

    @property
    def pools_seeds(self) -> bool:
        """Whether some required check judges all seeds together; where none does a verdict is a point estimate."""
        return any(check.pooled for check in self.required)

    @property
    def label(self) -> str:
        """Its name, with what sets it apart from the protocol which ships under that name."""
        return self.name + self._changes

    @property
    def title(self) -> str:
        """Name, version and what sets it apart."""
        return f"{self.name}, version {self.version}{',' if self._changes else ''}{self._changes}"

    @property
    def _changes(self) -> str:
        named = [check.name + ("" if check in self.required else " (advisory)") for check in self.added]
        parts = [f"with {listed(named)} added"] if named else []
        parts += [f"without {listed(self.dropped)}"] if self.dropped else []
        return "".join(f" {part}" for part in parts)

    def with_checks(
        self,
        required: Iterable[Check | type[Check] | str] = (),
        advisory: Iterable[Check | type[Check] | str] = (),
    ) -> Self:
        """The same protocol with checks added.

        Args:
            required: Checks that count in the verdict: a check, its class, a known name, or ``package.module:Name``.
            advisory: Checks that do not.
        """
        return replace(
            self,
            required=(*self.required, *map(find_check, required)),
            advisory=(*self.advisory, *map(find_check, advisory)),
        )

    def with_thresholds(self, thresholds: Mapping[str, float]) -> Self:
        """The same protocol with thresholds of one's own.

        Args:
            thresholds: Threshold by check name.
        """
        known = list(self.thresholds)
        for key in thresholds:
            if key not in known:
                raise BadInput(f"protocol {self.name!r} has no check {key!r} to set; {did_you_mean(key, known)}")

        def at(check: Check) -> Check:
            return check.at(thresholds[check.name]) if check.name in thresholds else check

        return replace(self, required=tuple(map(at, self.required)), advisory=tuple(map(at, self.advisory)))

    def to_dict(self) -> dict[str, Any]:
        """What the JSON of an audit says of it."""
        return {
            "protocol": self.name,
            "version": self.version,
            "thresholds": self.thresholds,
            "overrides": dict(self.overrides),
            "added_checks": [
                {"name": check.name, "required": check in self.required, "class": place_of(check)}
                for check in self.added
            ],
            "dropped_checks": list(self.dropped),
        }


def protocol_named(name: str | Protocol, thresholds: Mapping[str, float] | None = None) -> Protocol:
    """A protocol that ships, or the one given, with some thresholds of one's own.

    Args:
        name: ``standard``, ``published``, ``standard@1`` for an earlier version, or a ``Protocol``.
        thresholds: Threshold by check name; recorded in the audit.
    """
    if not isinstance(name, Protocol):
        if name not in _SHIPS:
            raise BadInput(f"unknown protocol {name!r}; {did_you_mean(str(name), NAMES)}")
        ships = _SHIPS[name]
        required, advisory = (tuple(check() for check in checks) for checks in (ships.required, ships.advisory))
        name = Protocol(name.partition("@")[0], ships.version, required, advisory, ships.families)
    return name.with_thresholds(thresholds or {})


def _ships(protocol: "Protocol") -> list[tuple[type[Check], bool]]:
    """What ships under a name and version: each check, and whether it is required; nothing under one of one's own."""
    for name, ships in _SHIPS.items():
        if (protocol.name, protocol.version) == (name.partition("@")[0], ships.version):
            return [*((check, True) for check in ships.required), *((check, False) for check in ships.advisory)]
    return []


def find_check(what: Check | type[Check] | str) -> Check:
    """A check from what names it.

    Args:
        what: A check, its class, a known name, or ``package.module:Name`` of either.
    """
    found = CHECKS.find(what)
    if isinstance(found, type) and issubclass(found, Check):
        try:
            found = found()
        except TypeError as error:
            raise BadInput(
                f"check {found.__name__} cannot be made without arguments ({error}); give one made"
            ) from None
    if not isinstance(found, Check):
        raise BadInput(f"{what!r} is no check; give a subclass of creditscope.Check")
    return found


def place_of(check: Check) -> str:
    """Where the class of a check is found: ``package.module:Name``.

    Args:
        check: The check.
    """
    return f"{type(check).__module__}:{type(check).__qualname__}"


def _refuse_unusable(check: Check) -> None:
    if not isinstance(check, Check):
        raise BadInput(f"{check!r} is no check; give a subclass of creditscope.Check, made")
    name = getattr(check, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(f"{place_of(check)}: a check's name is letters, digits, - and _, got {name!r}")
    value, (low, high) = getattr(check, "threshold", None), check.allowed
    if value is None:
        raise BadInput(f"check {name!r} has no threshold; give its class one: threshold = 1.0")
    if not (isinstance(value, (int, float)) and math.isfinite(value) and low <= value <= high):
        raise BadInput(f"threshold {name} must be a finite number in [{low:g}, {high:g}], got {value}")
