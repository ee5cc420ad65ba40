"""Checks that advise and never count in a verdict: the kind of failure, what the blocks add, which of them idle."""

import math
from typing import final

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, CheckPlot, Outcome, sentence
from creditscope.protocol.checks.point import ProbeCheck
from creditscope.protocol.evidence import Evidence, Grade, SeedOutcome, combine
from creditscope.protocol.facts import RunFacts, finite
from creditscope.protocol.text import listed
from creditscope.quantities.expensive import DRIFT, PROBE_ACCURACY
from creditscope.quantities.per_epoch import BRANCH
from creditscope.records.log import RunLog
from creditscope.records.measured import Idle
from creditscope.records.rows import ProbeRow

# A branch that adds less than this to the stream does nothing that a float32 net would notice.
NO_BRANCH = 1e-3
# A change of accuracy within so many standard errors over the images cannot be told from none.
IMAGE_ERROR = 1.96


@final
class DriftCheck(ProbeCheck):
    """Fires when the gradient of a batch of 128 is mostly common to all samples: drift, not noise."""

    name = "drift"
    field = "drift"
    label = "drift at N=128"
    unit = "fraction"
    shows_unit = False
    side = "above"
    threshold = 0.30
    allowed = (0.0, 1.0)
    title = "Drift"
    question = "What kind of failure is it?"
    healthy = "Drift near 1 means that all samples pull the same way; near 0 the gradient of a batch is noise."
    advice = (
        "Look at the mean gradient over samples apart from the rest before you read a cosine: what all samples share "
        "can carry it alone."
    )
    settled_by = "probe the drift of the gradient at the middle state"
    plot = CheckPlot(("drift",), lines=("drift",))

    def measure(self, facts: RunFacts, row: ProbeRow) -> Evidence:
        """s/(s + 1/128) at the middle state."""
        assert row.drift is not None  # ``rows`` gives only rows that hold it
        value = finite(DRIFT.at(row, facts.units))
        if value is None:
            return Evidence.missing("the drift is not finite")
        return Evidence.point(value, Grade.EXACT, f"at state {row.drift.state}")


@final
class RepresentationCheck(ProbeCheck):
    """Fires when a linear readout of h_L is no better than one of h_0: the blocks add nothing it can use."""

    name = "representation"
    field = "probe_accuracy"
    label = "probe accuracy of h_L − h_0"
    unit = "pp"
    by_difference = True
    side = "below"
    threshold = 0.0
    title = "Representation"
    question = "What do the blocks add?"
    healthy = "Probe accuracy shows how well a linear readout does on each state: it should rise with depth."
    advice = "Where probe accuracy falls from h_0 to h_L the blocks destroy information; compare with the frozen twin."
    settled_by = "fit a ridge readout on every state"
    plot = CheckPlot(("probe_accuracy", "participation"), "layers")

    def measure(self, facts: RunFacts, row: ProbeRow) -> Evidence:
        """Difference of the ridge readouts, in percentage points; no gain counts as firing."""
        first, last = (finite(PROBE_ACCURACY.at(row, facts.units, state)) for state in (0, -1))
        if first is None or last is None:
            return Evidence.missing("the probe accuracy of h_0 or h_L is missing")
        gain = 100 * (last - first)
        # "No better" includes a tie, while a check fires strictly below its threshold: step one float down.
        just_below = math.nextafter(gain, -math.inf)
        return Evidence(gain, just_below, just_below, Grade.EXACT)


@final
class IdleCheck(Check):
    """Fires when some block of some run could be taken out: nobody would notice, or its branch is hardly there."""

    name = "idle"
    unit = "idle blocks"
    side = "above"
    by_difference = True
    threshold = 0.0
    allowed = (0.0, math.inf)
    keeps_rows = False
    title = "Idle blocks"
    question = "Would anybody notice if a block were taken out?"
    healthy = (
        "A block idles when setting its branch to zero changes accuracy by less than the error over the test images, "
        "or when its branch adds less than a thousandth to the stream."
    )
    advice = "Count the blocks that work, not those that were built: the effective depth is smaller."
    settled_by = "measure accuracy with the branch of each block set to zero, at the last epoch"
    plot = CheckPlot(("branch",), "layers")

    def judge(self, cell: Cell) -> Outcome:
        """The run with the most idle blocks."""
        seeds: tuple[SeedOutcome, ...] = cell.readings(self)
        evidence = combine(seeds, self.side)
        return self.outcome(evidence, sentence(self, "idle blocks:", evidence, seeds), seeds)

    def read(self, run: RunLog, facts: RunFacts) -> SeedOutcome:
        """How many blocks that train idle at the last probe."""
        evidence = self._evidence(run, facts)
        epoch = run.last.epoch if run.last else None
        return SeedOutcome(run.spec.seed, run.name, epoch, evidence.ruling(self.threshold, self.side), evidence)

    def _evidence(self, run: RunLog, facts: RunFacts) -> Evidence:
        blocks = [block for block in range(facts.blocks) if facts.trains(block)]
        branches = (BRANCH.read(run.last, facts.units) if run.last else None) or ()
        idle = next((probe.idle for probe in reversed(run.probes) if probe.idle is not None), None)
        found = [_idles(block, branches[block] if block < len(branches) else None, idle) for block in blocks]
        if not found:
            return Evidence.missing("no block trains")
        if all(value is None for value in found):
            return Evidence.missing("the removal of blocks was not measured")
        which = [block for block, value in zip(blocks, found, strict=True) if value]
        least, unknown = len(which), sum(value is None for value in found)
        note = f"block{'s' if least > 1 else ''} {listed(which)}" if which else ""
        if not unknown:
            return Evidence.point(least, Grade.EXACT, note)
        why = f"the removal of {unknown} blocks was not measured"
        notes = tuple(filter(None, (note, why)))
        return Evidence(least if least else None, least, least + unknown, Grade.BOUNDED, notes)


def _idles(block: int, branch: float | None, idle: Idle | None) -> bool | None:
    """Whether a block idles; None where its branch is there and its removal was not measured."""
    if branch is not None and branch < NO_BRANCH:
        return True
    if idle is None or block >= len(idle.change):
        return None
    change, se = finite(idle.change[block]), finite(idle.se[block])
    return None if change is None or se is None else abs(change) <= IMAGE_ERROR * se
