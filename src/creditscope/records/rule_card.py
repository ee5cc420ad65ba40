"""RuleCard: what a log says of its credit rule, so that the log reads without the rule's code."""

from typing import Literal

from pydantic import Field

from creditscope.records.method import Option
from creditscope.records.spec_parts import Frozen

Family = Literal["signal", "update", "objective"]
PenaltyKind = Literal["local", "global", "none"]


class Sketch(Frozen):
    """How a picture of the network shows where a rule's credit enters.

    Args:
        text: One line.
        route: ``chain``: back from the loss, part by part; ``direct``: straight to the embedding and to each block.
        random: Parts that the credit of a chain passes through a random matrix instead of a weight.
    """

    text: str
    route: Literal["chain", "direct"] | None = None
    random: tuple[Literal["head", "norm", "block"], ...] = ()


class RuleCard(Frozen):
    """What a credit rule says of itself.

    Args:
        name: Its name, as in the spec.
        family: ``signal``: a credit vector at each state; ``update``: a change of the weights alone; ``objective``: a
            loss of its own in each block.
        formula: The rule in one line.
        paper: Where it was published.
        penalty: Whether a penalty on the branches stays in its block, joins the global loss, or does not apply.
        learns: Whether the rule changes its own state (feedback, auxiliary nets) in training.
        options: Every option with its value.
        sketch: How the strip of the hero figure shows it.
    """

    name: str
    family: Family | None = None
    formula: str | None = None
    paper: str | None = None
    penalty: PenaltyKind | None = None
    learns: bool | None = None
    options: dict[str, Option] = Field(default_factory=dict)
    sketch: Sketch | None = None
