"""The fidelity check: is the reference gradient in the run's dtype the true one?"""

import math
from typing import ClassVar, final

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import CheckPlot
from creditscope.protocol.checks.point import ProbeCheck
from creditscope.protocol.evidence import Evidence, Grade, Ruling
from creditscope.protocol.facts import RunFacts, finite
from creditscope.protocol.text import listed, number
from creditscope.quantities.expensive import PHI
from creditscope.records.log import RunLog
from creditscope.records.provenance import OFF
from creditscope.records.rows import ProbeRow

FIDELITY_FLOOR = 0.9999
MAYBE_TF32 = "the log does not say that TF32 was off in the probe, which alone can do this"


class Fidelity(ProbeCheck):
    """Fires when φ = cos(g in the run's dtype, g in float64), median over samples, is below the floor at any state."""

    # Whether a low φ counts only where the log says that the probe was taken without TF32.
    wants_settings: ClassVar[bool]
    name = "fidelity"
    field = "fidelity"
    label = "fidelity φ"
    unit = "cosine"
    shows_unit = False
    threshold = FIDELITY_FLOOR
    allowed = (0.0, 1.0)
    title = "Fidelity"
    question = "Is the reference gradient in the run's own precision the true one?"
    healthy = (
        "The cosine error is what rounding alone can do to any cosine with this gradient. Below the line the "
        "reference is good enough to judge by."
    )
    advice = "Measure the reference again in float64; cosines taken in this precision cannot be used."
    settled_by = "probe the last checkpoint in float64 and in the run's dtype"
    plot = CheckPlot(("fidelity", "clamp"), "layers", lines=("fidelity",))

    def measure(self, facts: RunFacts, row: ProbeRow) -> Evidence:
        """The smallest φ over the states; a value that was not finite counts as 0."""
        assert row.fidelity is not None  # ``rows`` gives only rows that hold it
        lost = [path for path in row.nonfinite if path.startswith("fidelity.median")]
        if lost:
            return Evidence.point(0.0, Grade.EXACT, f"the gradient is not finite in {row.fidelity.dtype} ({lost[0]})")
        states = [finite(value) for value in PHI.read(row, facts.units) or ()]
        states += [None] * ((facts.header.spec.depth or 0) + 1 - len(states))
        known = [(value, state) for state, value in enumerate(states) if value is not None]
        if not known:
            return Evidence.missing("fidelity was not measured at any state")
        value, state = min(known)
        note = f"at state {state}, in {row.fidelity.dtype}"
        if value < self.threshold and self.wants_settings and _may_be_tf32(facts, row.fidelity.dtype):
            return Evidence(value, value, 1.0, Grade.BOUNDED, (note, MAYBE_TF32))
        if len(known) == len(states):
            return Evidence.point(value, Grade.EXACT, note)
        unknown = [state for state, value in enumerate(states) if value is None]
        return Evidence(value, -1.0, value, Grade.BOUNDED, (note, f"not measured at states {listed(unknown)}"))

    def remarks(self, cell: Cell, evidence: Evidence) -> list[str]:
        """What to do with an unfaithful reference."""
        fires = evidence.ruling(self.threshold, self.side) is Ruling.FIRES
        return ["not usable in this dtype; re-measure in float64"] if fires else []

    def settles(self, evidence: Evidence) -> str:
        """A probe in which TF32 may have been on is to be taken again without it."""
        again = f"probe the last checkpoint again with TF32 off ({OFF} in the log says so)"
        return again if MAYBE_TF32 in evidence.notes else self.settled_by

    def distance(self, value: float | None) -> float | None:
        """Factor between what the floor allows φ to miss 1 by and what it misses: above 1 passes."""
        if value is None or value >= 1:
            return None
        return (1 - self.threshold) / (1 - value)

    def show(self, value: float | None) -> str:
        """φ so near 1 that four digits hide it is given by what it misses 1 by."""
        return super().show(value) if value is None or not FIDELITY_FLOOR < value < 1 else f"1 − {1 - value:.1e}"

    def line(self) -> tuple[float, str]:
        """The cosine error that the floor allows: what the plot shows is √(1 − φ²)."""
        return math.sqrt(1 - self.threshold**2), f"threshold φ = {number(self.threshold)}"


@final
class FidelityCheck(Fidelity):
    """As above, but a low φ that TF32 may have made asks for another measurement: a healthy ResNet has .998 in TF32."""

    wants_settings = True
    old_rows_decide = False


def _may_be_tf32(facts: RunFacts, dtype: str | None) -> bool:
    said = facts.header.provenance
    return dtype == "float32" and OFF not in said and said.get("device") != "cpu"


def worst_fidelity(run: RunLog) -> float | None:
    """The smallest median φ of a run's last fidelity probe; None when there is none."""
    for row in reversed(run.probes):
        if (states := PHI.read(row, run.units)) is not None:
            if any(path.startswith("fidelity.median") for path in row.nonfinite):
                return 0.0
            return min((value for value in states if value is not None), default=None)
    return None
