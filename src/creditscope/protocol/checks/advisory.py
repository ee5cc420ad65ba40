"""Checks that advise and never count in a verdict: drift names a sub-mode, representation asks what the blocks add."""

import math
from typing import final

from creditscope.protocol.check import CheckPlot
from creditscope.protocol.checks.point import ProbeCheck
from creditscope.protocol.evidence import Evidence, Grade
from creditscope.protocol.facts import RunFacts, finite
from creditscope.quantities.expensive import DRIFT, PROBE_ACCURACY
from creditscope.records.rows import ProbeRow


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
