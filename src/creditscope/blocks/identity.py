"""The identity of a rule: what it needs, which identities prove it, what was reported, how public code differs."""

from typing import NamedTuple


class Proof(NamedTuple):
    """An identity that a test holds, in float64.

    Args:
        statement: The identity.
        test: The test's function.
    """

    statement: str
    test: str


class Reported(NamedTuple):
    """A number that somebody published.

    Args:
        setting: Network and data.
        result: The number, with its unit.
        source: Where it stands.
    """

    setting: str
    result: str
    source: str


class Identity(NamedTuple):
    """What a rule says of itself beyond its formula.

    Args:
        needs: What a block must be told or keep, besides its own activity.
        spares: What it does without.
        proofs: Identities that tests hold.
        reported: What the field reports; settings to compare with, not to tune to.
        differs: Where public code of that name does something else.
    """

    needs: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    reported: tuple[Reported, ...] = ()
    differs: tuple[str, ...] = ()
