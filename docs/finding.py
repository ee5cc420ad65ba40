"""A finding and its claims: sentences that numbers can contradict, and the word that follows from them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One sentence that numbers can contradict.

    Args:
        says: The sentence.
        holds: Whether the numbers agree; None when nothing was measured.
        numbers: What was computed.
    """

    says: str
    holds: bool | None
    numbers: str

    @property
    def word(self) -> str:
        """Its outcome."""
        return {True: "shown", False: "refuted", None: "not measured"}[self.holds]


@dataclass(frozen=True)
class Finding:
    """A finding made of claims.

    Args:
        title: In a few words.
        claims: Its parts.
        note: What else the reader should know.
    """

    title: str
    claims: tuple[Claim, ...]
    note: str = ""

    @property
    def word(self) -> str:
        """``shown`` or ``refuted`` only when every part that was measured agrees and none is open."""
        words = {claim.word for claim in self.claims}
        return words.pop() if len(words) == 1 else "partly"

    def text(self, index: int) -> str:
        """As a section of the page."""
        lines = [f"## {index}. {self.title}: {self.word}", ""]
        lines += [f"- **{claim.word}** — {claim.says} {claim.numbers}" for claim in self.claims]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])
