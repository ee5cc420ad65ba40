"""The reference check: is there still a gradient to compare credit with, and is it usable?"""

import math
from typing import final

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import CheckPlot
from creditscope.protocol.checks.fidelity import FIDELITY_FLOOR, worst_fidelity
from creditscope.protocol.checks.point import EpochCheck
from creditscope.protocol.evidence import Evidence, Grade, Ruling
from creditscope.protocol.facts import RunFacts, finite
from creditscope.protocol.text import listed, number
from creditscope.quantities.per_epoch import ERROR, GAIN, REFERENCE
from creditscope.records.rows import EpochRow
from creditscope.records.units import PUBLISHED_PROBE_SIZE

# torch clamps each norm of a cosine here.
TORCH_CLAMP = 1e-8
FITTED_ERROR = 1e-3
# A clamped cosine that is off by less than this factor is as good as one that is not clamped.
HARMFUL_CLAMP = 1.05
# A shallower state's gradient stands for the last one's only to within this factor.
STAND_IN_FACTOR = 1.5
# e = softmax − onehot is never longer than this.
LARGEST_ERROR = math.sqrt(2)
# The published floor is 1e-7 on gradients mean-reduced over 128 samples; ours are sum-reduced.
REFERENCE_FLOOR = 1e-7 * 128


class _Reference(EpochCheck):
    """What both forms share."""

    name = "reference"
    shows_unit = False
    threshold = REFERENCE_FLOOR
    allowed = (0.0, math.inf)
    title = "Reference"
    question = "Is there still a true gradient to be compared with?"
    healthy = (
        "The gain says how much of the output error reaches a state by true backpropagation. Where it falls below"
        " the floor, the gradient is too small to be a usable reference for a clamped cosine."
    )
    advice = (
        "Where a clamped cosine is said to be off, do not report it: the unclamped one stands, with its fidelity. Find "
        "out why the gradient vanished: most often the residual stream grew in front of a terminal LayerNorm."
    )


@final
class ReferenceNorm(_Reference):
    """Fires when med‖g_L‖ falls below the floor: the published form."""

    label = f"{REFERENCE.symbol_at('L')} ({REFERENCE.unit})"
    unit = REFERENCE.unit
    settled_by = "log the median per-sample norm of ∂ℓ/∂h_L with its reduction and probe size"
    plot = CheckPlot(("gain", "reference", "clamp"), "layers", lines=("reference",))

    def measure(self, facts: RunFacts, row: EpochRow) -> Evidence:
        """The median norm of the last state's gradient, or of the deepest state that was logged."""
        return reference_norm(facts, row)

    def remarks(self, cell: Cell, evidence: Evidence) -> list[str]:
        """Units, whether the net is simply fitted, and what a small reference means for a cosine."""
        errors = [finite(ERROR.last(run)) for run in cell.runs]
        known = [error for error in errors if error is not None]
        ruling = evidence.ruling(self.threshold, self.side)
        said = (
            [_range_of_n(evidence, self.threshold, ruling)] if not all(f.units.known for _, f in cell.members) else []
        )
        if ruling is Ruling.FIRES and known and min(known) < FITTED_ERROR:
            said.append(f"small because fitted: the median error ‖e‖ is {number(min(known))}")
        return [text for text in [*said, *(usable(cell) if ruling is Ruling.FIRES else [])] if text]


@final
class ReferenceGain(_Reference):
    """Fires when the gain γ_L = med(‖g_L‖/‖e‖) falls below the floor: a well-fitted net passes."""

    label = "gain γ_L"
    unit = GAIN.unit
    settled_by = "log the median over samples of ‖∂ℓ/∂h_L‖/‖∂ℓ/∂logits‖ at the last epoch"
    plot = CheckPlot(("gain", "reference", "clamp"), "layers", lines=("gain",))

    def measure(self, facts: RunFacts, row: EpochRow) -> Evidence:
        """The gain at the last state; from the norm alone, a lower bound."""
        value = finite(GAIN.at(row, facts.units, facts.blocks))
        if value is not None:
            return Evidence.point(value, Grade.EXACT)
        norm = reference_norm(facts, row)
        if norm.grade is Grade.MISSING:
            return Evidence.missing(f"no gain is logged; {norm.notes[0]}")
        if error := finite(ERROR.at(row, facts.units)):
            note = "the gain is not logged; med‖g_L‖/med‖e‖ stands in for it"
            return Evidence(*(_divided(norm, error)), Grade.PROXY, (note, *norm.notes))
        note = "no gain and no error ‖e‖ is logged; ‖e‖ ≤ √2 (cross-entropy assumed) bounds the gain from below"
        return Evidence(None, norm.low / LARGEST_ERROR, math.inf, Grade.PROXY, (note, *norm.notes))

    def remarks(self, cell: Cell, evidence: Evidence) -> list[str]:
        """What a small gain means for a cosine."""
        return usable(cell) if evidence.ruling(self.threshold, self.side) is Ruling.FIRES else []


def reference_norm(facts: RunFacts, row: EpochRow) -> Evidence:
    """med‖g_L‖ in sum-reduced per-sample units, graded by where it stands and whether its units are known.

    Args:
        facts: The run.
        row: One epoch.
    """
    norms = [finite(value) for value in REFERENCE.read(row, facts.units) or ()]
    known = [state for state in range(min(len(norms), facts.blocks + 1)) if norms[state] is not None]
    if not known:
        return Evidence.missing("no norm of the reference gradient is logged")
    state = known[-1]
    value = norms[state] or 0.0
    units = "" if facts.units.known else f"units not stated, read as mean-reduced at N={PUBLISHED_PROBE_SIZE}"
    if state == facts.blocks:
        return Evidence.point(value, Grade.PROXY if units else Grade.EXACT, units)
    notes = (f"g_{state} stands in for g_L, to within ×{STAND_IN_FACTOR:g}", units, facts.blocks_note)
    low, high = value / STAND_IN_FACTOR, value * STAND_IN_FACTOR
    return Evidence(value, low, high, Grade.PROXY, tuple(note for note in notes if note))


def usable(cell: Cell) -> list[str]:
    """What a reference below its floor means for a cosine: the words follow fidelity and the clamp."""
    said: dict[str, list[str]] = {}
    for run, facts in cell.members:
        norm = reference_norm(facts, run.last) if run.last is not None else Evidence.missing("no epoch")
        fidelity = worst_fidelity(run)
        if fidelity is None:
            text = "whether it is still exact was not measured (no fidelity probe)"
        elif fidelity < FIDELITY_FLOOR:
            text = f"not usable in this dtype (φ = {number(fidelity)}); re-measure in float64"
        elif norm.value:
            k = max(1.0, facts.units.probe_size * TORCH_CLAMP / norm.value)
            at = f"at N={facts.units.probe_size}"
            text = "tiny but exact: " + (
                f"a clamped cosine is off by ×{number(k)} {at}, the unclamped value stands"
                if k >= HARMFUL_CLAMP
                else f"the clamp does no harm {at}"
            )
        else:
            text = "tiny but exact in this dtype"
        said.setdefault(text, []).append(str(run.spec.seed))
    if len(said) == 1:
        return list(said)
    return [f"seed{'s' if len(seeds) > 1 else ''} {listed(seeds)}: {text}" for text, seeds in said.items()]


def _divided(evidence: Evidence, by: float) -> tuple[float | None, float, float]:
    value = None if evidence.value is None else evidence.value / by
    return value, evidence.low / by, evidence.high / by


def _range_of_n(evidence: Evidence, threshold: float, ruling: Ruling) -> str:
    """For which probe sizes an outcome in assumed units holds: the norm of a mean-reduced gradient is ×N."""
    n = PUBLISHED_PROBE_SIZE
    if ruling is Ruling.PASSES and evidence.low > 0:
        return f"holds for every probe size N ≥ {max(1, math.ceil(threshold * n / evidence.low))}"
    if ruling is Ruling.FIRES and evidence.high > 0:
        return f"holds for every probe size N ≤ {math.ceil(threshold * n / evidence.high) - 1}"
    if ruling is Ruling.FIRES:
        return "holds for every probe size"
    if ruling is Ruling.UNDECIDED and evidence.low > 0:
        low, high = math.ceil(threshold * n / evidence.high), math.ceil(threshold * n / evidence.low) - 1
        return f"undecided for probe sizes N from {low} to {high}"
    return ""
