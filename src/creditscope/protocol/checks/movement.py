"""The movement check: did every block that should train, and all feedback that should learn, leave its start?"""

import math
from typing import final

from creditscope.protocol.cells import STILL
from creditscope.protocol.check import CheckPlot
from creditscope.protocol.checks.point import EpochCheck
from creditscope.protocol.evidence import Evidence, Grade
from creditscope.protocol.facts import RunFacts, finite
from creditscope.records.measured import Movement
from creditscope.records.rows import EpochRow


@final
class MovementCheck(EpochCheck):
    """Fires when every weight matrix of some trainable block moved less than the threshold, decay not counted.

    So it does when a matrix of feedback that is said to learn stood still.
    """

    name = "movement"
    label = "movement of the stillest block"
    unit = "‖Δθ‖/‖θ(0)‖"
    shows_unit = False
    threshold = STILL
    allowed = (0.0, math.inf)
    from_epoch = 1
    title = "Movement"
    question = "Did every block that should train leave its initial weights?"
    healthy = (
        "Shown is the largest movement among a block's weight matrices, weight decay not counted. A block at the "
        "bottom of the plot never learned."
    )
    advice = "Look for a block without credit: a detached tensor, a missing parameter group, a credit of exactly zero."
    settled_by = "log min_c ‖θ(t) − c·θ(0)‖/‖θ(0)‖ of every weight matrix of every trained block"
    plot = CheckPlot(("stillest", "movement"), lines=("stillest", "movement"))

    def measure(self, facts: RunFacts, row: EpochRow) -> Evidence:
        """The stillest block or, where it moved less, the stillest matrix of the feedback that learns."""
        movement = row.movement
        if movement is None:
            return Evidence.missing("no movement of weights is logged")
        weights = self._weights(facts, movement)
        if not facts.learns or weights.grade is Grade.MISSING:
            return weights
        known = {name: value for name, value in (movement.feedback or {}).items() if finite(value) is not None}
        if not known or len(known) < len(movement.feedback or {}):
            return Evidence.missing("its feedback is said to learn, and how far it moved is not logged")
        stillest, name = min((value, name) for name, value in known.items() if value is not None)
        if stillest >= weights.low:
            return weights
        return Evidence.point(stillest, Grade.EXACT, f"feedback {name}")

    def _weights(self, facts: RunFacts, movement: Movement) -> Evidence:
        if len(movement.blocks) != len(movement.trainable):
            return Evidence.missing("the log names another number of blocks than it says which of them train")
        depth, planned = facts.header.spec.depth, facts.header.spec.train_last is not None
        if depth is not None and len(movement.blocks) != depth:
            return Evidence.missing(f"movement is logged for {len(movement.blocks)} of {depth} blocks")
        lows, highs, moved = [], [], movement.weights.get
        for block, (names, trains) in enumerate(zip(movement.blocks, movement.trainable, strict=True)):
            if names and (trains or (planned and facts.trains(block))):
                known = [value for value in map(moved, names) if value is not None and value - value == 0]  # finite
                largest = max(known) if known else 0.0
                lows.append((largest, block))
                # A matrix that was not measured leaves the block's movement open upwards.
                highs.append(largest if len(known) == len(names) else math.inf)
        if not lows:
            return Evidence.missing("no block with weight matrices trains")
        high, (low, block) = min(highs), min(lows)
        if low == high:
            return Evidence.point(low, Grade.EXACT, f"at block {block}")
        return Evidence(None, low, high, Grade.BOUNDED, (f"not every weight matrix of block {block} was measured",))
