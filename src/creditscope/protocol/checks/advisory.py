"""Checks that advise and never count in a verdict: drift names a sub-mode, representation asks what the blocks add."""

import math
from typing import final

from creditscope.protocol.check import Evidence, Grade
from creditscope.protocol.checks.point import ProbeCheck
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
    side = "above"

    def measure(self, facts: RunFacts, row: ProbeRow) -> Evidence:
        """s/(s + 1/128) at the middle state."""
        assert row.drift is not None  # ``rows`` hands over only rows that hold it
        value = finite(DRIFT.at(row, facts.units))
        if value is None:
            return Evidence.missing("the drift is not finite")
        return Evidence.point(value, Grade.EXACT, f"at state {row.drift.state}")

    def settles(self, evidence: Evidence) -> str:
        """What to measure."""
        return "probe the drift of the gradient at the middle state"


@final
class RepresentationCheck(ProbeCheck):
    """Fires when a linear readout of h_L is no better than one of h_0: the blocks add nothing it can use."""

    name = "representation"
    field = "probe_accuracy"
    label = "probe accuracy of h_L − h_0"
    unit = "pp"
    side = "below"

    def measure(self, facts: RunFacts, row: ProbeRow) -> Evidence:
        """Difference of the ridge readouts, in percentage points; no gain counts as firing."""
        first, last = (finite(PROBE_ACCURACY.at(row, facts.units, state)) for state in (0, -1))
        if first is None or last is None:
            return Evidence.missing("the probe accuracy of h_0 or h_L is missing")
        gain = 100 * (last - first)
        # "No better" includes a tie, while a check fires strictly below its threshold: step one float down.
        just_below = math.nextafter(gain, -math.inf)
        return Evidence(gain, just_below, just_below, Grade.EXACT)

    def distance(self, value: float | None) -> float | None:
        """Percentage points above the threshold."""
        return None if value is None else value - self.threshold

    def near(self, value: float | None) -> bool:
        """A difference around zero has no factor to be near by."""
        return False

    def settles(self, evidence: Evidence) -> str:
        """What to measure."""
        return "fit a ridge readout on every state"
