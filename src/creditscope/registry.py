"""Registries: what a name stands for, in this package, in installed ones, or in the user's own code."""

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from creditscope.errors import BadInput, did_you_mean

# Entry-point group of checks; the command line lists it without importing the checks that ship.
CHECK_GROUP = "creditscope.checks"

# How a method's name is written; ``records.method`` reads it.
GRAMMAR = "RULE[(option=value,…)][-rms][+penλ][+anchorN][@fixed-feedback][@frozen|@readout|@lastK]"


class Registry:
    """The things of one kind, by name. Listing names imports nothing; a name that a log holds is never imported.

    Args:
        kind: What they are, for messages: ``rule``, ``model``, ``check``.
        group: Entry-point group through which other packages add theirs.
        builtin: Those of this package: name to ``package.module:Name``.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self._builtin = dict(builtin)

    def names(self) -> list[str]:
        """Every known name: those of this package first, then those of installed packages."""
        return list(self._places())

    def find(self, what: str | object) -> Any:
        """The thing itself.

        Args:
            what: A known name; ``package.module:Name`` of the user's own code; or the thing, returned as it is.
        """
        if not isinstance(what, str):
            return what
        if ":" in what:
            return load(what, self.kind)
        places = self._places()
        if what not in places:
            raise BadInput(
                f"unknown {self.kind} {what!r}; {did_you_mean(what, places)} (your own: write package.module:Name)"
            )
        return load(places[what], self.kind)

    def _places(self) -> dict[str, str]:
        added = _installed(self.group, tuple(sys.path))
        return {**self._builtin, **{name: value for name, value in added.items() if name not in self._builtin}}


@lru_cache(maxsize=64)
def _installed(group: str, path: tuple[str, ...]) -> dict[str, str]:
    """Entry points of a group; to find them every installed package is looked at, so it is done once a search path."""
    return {entry.name: entry.value for entry in entry_points(group=group)}


def load(place: str, kind: str) -> Any:
    """Import what ``package.module:Name`` names. It runs that module with the user's rights.

    Args:
        place: Module and name.
        kind: What it is, for messages.
    """
    module, _, name = place.partition(":")
    if not name:
        raise BadInput(f"{kind} {place!r}: wanted package.module:Name")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        why = "is its folder on PYTHONPATH?" if f"{module}.".startswith(f"{missing}.") else "install it"
        raise BadInput(f"{kind} {place!r}: cannot be imported (no module {missing}); {why}") from None
    except Exception as error:  # the user's own module may raise anything
        said = (str(error).splitlines() or [""])[0]
        raise BadInput(f"{kind} {place!r}: cannot be imported ({type(error).__name__}: {said}); correct it") from error
    for part in name.split("."):
        if not hasattr(found, part):
            known = [n for n in vars(found) if not n.startswith("_")]
            raise BadInput(f"{kind} {place!r}: {module} has no {name}; {did_you_mean(name, known)}")
        found = getattr(found, part)
    return found


def one_of_each(things: Iterable[Any], kind: str) -> dict[str, Any]:
    """Things by their own ``name``; two of one name are refused.

    Args:
        things: Objects or classes with an attribute ``name``.
        kind: What they are, for messages.
    """
    found: dict[str, Any] = {}
    for thing in things:
        name = getattr(thing, "name", None)
        if not isinstance(name, str) or not name:
            raise BadInput(f"{kind} {thing!r} has no name; give its class a class attribute name = '...'")
        if name in found and found[name] is not thing:
            raise BadInput(f"two {kind}s are called {name!r}; give one of them another name")
        found[name] = thing
    return found


# Kept here, not next to the readers, because these load torch and their names are wanted without it.
DATASETS = Registry(
    "data set",
    "creditscope.datasets",
    {
        "fashion-mini": "creditscope.data.bundled:load",
        "fashion-mnist": "creditscope.data.idx:load",
        "cifar10": "creditscope.data.cifar10:load",
        "cifar100": "creditscope.data.cifar100:load",
        "king-james": "creditscope.data.king_james:load",
        "synthetic": "creditscope.data.synthetic:load",
    },
)
