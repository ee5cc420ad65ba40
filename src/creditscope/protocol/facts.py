"""What a judge must know about a run besides its rows: its blocks, its units, and what was assumed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from creditscope.errors import BadInput, did_you_mean
from creditscope.quantities.per_epoch import HIDDEN
from creditscope.records.layouts import PENALTY_BLOCKS
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, HeaderRow
from creditscope.records.rule_card import Family
from creditscope.records.units import Units

SMALLEST_RATIO = 0.4


@dataclass(frozen=True)
class Assumptions:
    """What is assumed where a log does not say; each is named in the outcome that uses it.

    Args:
        blocks: L for logs that do not state it.
        h0: Norm of the initial stream, for logs without h_0 that do not hold epoch 0 either.
        ratio: r, the smallest per-block ratio of the stream.
    """

    blocks: int | None = None
    h0: float | None = None
    ratio: float = SMALLEST_RATIO

    @classmethod
    def of(cls, given: Mapping[str, float]) -> "Assumptions":
        """Check and take what a user assumes.

        Args:
            given: Any of ``blocks``, ``h0`` and ``ratio``.
        """
        for name, value in given.items():
            if name not in cls.__dataclass_fields__:
                raise BadInput(
                    f"nothing called {name!r} can be assumed; {did_you_mean(name, cls.__dataclass_fields__)}"
                )
            if not (math.isfinite(value) and value > 0):
                raise BadInput(
                    f"an assumed {name} must be a positive number, got {value}; e.g. blocks=4,h0=9,ratio=0.4"
                )
        blocks = given.get("blocks")
        if blocks is not None and not float(blocks).is_integer():
            raise BadInput(f"assumed blocks must be a whole number, got {blocks}")
        ratio = given.get("ratio", SMALLEST_RATIO)
        if ratio > 1:
            raise BadInput(
                f"the smallest ratio assumed must be at most 1, got {ratio}; the default is {SMALLEST_RATIO}"
            )
        return cls(blocks=None if blocks is None else int(blocks), h0=given.get("h0"), ratio=ratio)


@dataclass(frozen=True)
class RunFacts:
    """One run as the checks see it.

    Args:
        header: What the run is.
        assume: What a user assumed.
        initial: ‖h_L‖ at epoch 0, where it was logged.
        delivers: Whether credit at the states was logged: then the rule can be asked for its direction there.
        moved: The largest movement among the weight matrices of all blocks at the end; None where none was logged.
    """

    header: HeaderRow
    assume: Assumptions = field(default_factory=Assumptions)
    initial: float | None = None
    delivers: bool = False
    moved: float | None = None

    @classmethod
    def of(cls, log: RunLog, assume: Assumptions) -> "RunFacts":
        """The facts of a whole log."""
        first = log.epochs[0] if log.epochs else None
        movement = log.last.movement if log.last is not None else None
        names = [name for block in movement.blocks for name in block] if movement is not None else []
        known = [value for name in names if movement is not None and (value := movement.weights.get(name)) is not None]
        delivers = any(row.cosine is not None for row in log.epochs)
        return cls(log.header, assume, initial_stream(first), delivers, max(known, default=None))

    @cached_property
    def blocks(self) -> int:
        """L: stated by the log, else assumed, else the penalty layout's."""
        return self.header.spec.depth or self.assume.blocks or PENALTY_BLOCKS

    @property
    def blocks_note(self) -> str:
        """Empty when the log states L; else what was taken."""
        if self.header.spec.depth:
            return ""
        given = "assumed by the user" if self.assume.blocks else "the penalty layout's default"
        return f"L = {self.blocks} ({given}; the log does not state it)"

    @cached_property
    def units(self) -> Units:
        """The units of the log's gradient norms."""
        return self.header.units

    @cached_property
    def exact(self) -> tuple[bool, ...]:
        """Whether the credit at each state is exact by construction; all False where the log does not say."""
        if self.header.exact is not None:
            return tuple(self.header.exact)
        return (self.header.spec.rule == "bp",) * (self.blocks + 1)

    @property
    def family(self) -> Family:
        """What the rule can be asked, verified: one that delivers is of the signal family, whatever it says of itself.

        A rule with a loss of its own in each block is asked as an update rule until its locality was shown.
        """
        said = self.header.card.family or "signal"
        if self.delivers or said == "signal":
            return "signal"
        return said if said == "update" or self.header.locality else "update"

    @property
    def learns(self) -> bool:
        """Whether feedback is said to learn, and was not held at its start as a control.

        What learns besides the weights under a rule with a loss in each block is a part of that loss, no feedback.
        """
        return bool(self.header.card.learns) and not self.header.spec.fixed_feedback and self.family != "objective"

    def trains(self, block: int) -> bool:
        """Whether a block trains, as far as the spec says; block −1 is the embedding."""
        if block < 0:
            return self.header.spec.train_embedding is not False
        last = self.header.spec.train_last
        return not isinstance(last, int) or block >= self.blocks - last


def initial_stream(row: EpochRow | None) -> float | None:
    """‖h_L‖ before training, or None when the log does not begin at epoch 0."""
    return HIDDEN.at(row, Units()) if row is not None and row.epoch == 0 else None


def finite(value: float | None) -> float | None:
    """The value, or None when it is not a finite number."""
    return value if value is not None and math.isfinite(value) else None


def diverged_at(row: EpochRow) -> str | None:
    """What became NaN or infinite among the norms of an epoch, in words; None when all are finite."""
    for path, kind in row.nonfinite.items():
        if path.startswith(("hidden", "reference", "growth")):
            return f"{path} became {kind} at epoch {row.epoch}"
    for name, norms in (("hidden", row.hidden), ("reference", row.reference)):
        if norms is None or math.isfinite(sum(filter(None, norms.median))):
            continue
        for state, value in enumerate(norms.median):
            if value is not None and not math.isfinite(value):
                return f"{name}.median[{state}] became {value} at epoch {row.epoch}"
    return None
