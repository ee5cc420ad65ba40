"""Probes of the reference gradient: is it usable, where does torch's clamp begin, is it common to all samples?"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from creditscope.blocks import Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.functional.clamp import PROBE_SIZES, clamp_onset, shrink_factor
from creditscope.probes.functional.drift import drift_at, drift_ratio
from creditscope.probes.functional.fidelity import allowed_error, confident_tenth, infidelity
from creditscope.probes.functional.norms import norm_stats, vector_norms
from creditscope.probes.probe import Measured, Need, Probe, exact_twin, numbers, references_in_view
from creditscope.records.rows import ClampOnset, Drift, Fidelity


@dataclass(frozen=True)
class FidelityProbe(Probe):
    """Does the run's dtype carry the reference?

    Measures: φ = cos(g in the run's dtype, g in float64) per state: median, and median of the most confident tenth.
    Healthy: 1 − φ near 1e-14 in float32, φ ≥ .9999 in bf16.
    Fooled by: samples that are zero in both (they have no φ and are left out); a run already in float64 (φ = 1).
    Null: none; float64 is the reference.
    """

    name: ClassVar[str] = "fidelity"
    unit: ClassVar[str] = "cosine"
    needs: ClassVar[tuple[Need, ...]] = ("states", "references")
    fields: ClassVar[tuple[str, ...]] = ("fidelity",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """One forward and backward pass in each dtype."""
        twin = exact_twin(snapshot)
        pairs = zip(references_in_view(snapshot), references_in_view(twin), strict=True)
        gaps, vanished = zip(*(infidelity(run, exact) for run, exact in pairs), strict=True)
        median = torch.stack([gap.nanquantile(0.5) for gap in gaps])
        classes = not snapshot.probe.y.is_floating_point() and twin.seen.logits.shape[-1] > 1
        sure = confident_tenth(twin.seen.logits) if classes else None
        confident = None if sure is None else numbers([1 - gap[sure].nanquantile(0.5) for gap in gaps])
        return Measured(
            {
                "fidelity": Fidelity(
                    median=numbers(1 - median),
                    confident=confident,
                    error=numbers(allowed_error(median)),
                    n_zero=[int(mask.sum()) for mask in vanished],
                    dtype=str(snapshot.dtype).removeprefix("torch."),
                )
            }
        )


@dataclass(frozen=True)
class ClampProbe(Probe):
    """Where does torch's clamped cosine begin to shrink?

    Measures: N* = med‖g_l‖/1e-8 and the shrink factor max(1, N/N*) at N = 128, 1024, 2048.
    Healthy: N* far above any probe size, every factor 1.
    Fooled by: a well-fitted net, whose g is small because e is; the gain tells the two apart.
    Null: none; it is arithmetic.
    """

    name: ClassVar[str] = "clamp onset"
    unit: ClassVar[str] = "samples"
    needs: ClassVar[tuple[Need, ...]] = ("references",)
    fields: ClassVar[tuple[str, ...]] = ("clamp",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """From the norms in the run's own dtype, as a clamped cosine would meet them."""
        norms = torch.stack([vector_norms(g) for g in references_in_view(snapshot)])
        onset = clamp_onset(norm_stats(norms).median)
        shrink = {str(n): numbers(shrink_factor(onset, n)) for n in PROBE_SIZES}
        return Measured({"clamp": ClampOnset(onset=numbers(onset), shrink=shrink)})


@dataclass(frozen=True)
class DriftProbe(Probe):
    """Is the gradient common to all samples?

    Measures: s = ‖μ‖²/tr Σ of g at the middle state, its jackknife error, and the common share at a batch of 128.
    Healthy: the share at 128 stays below 0.30; near 1 all samples push one way.
    Fooled by: too few probe samples (the standard error says so) and strongly unequal classes.
    Null: none; the law s/(s + 1/N) is checked on synthetic gradients.
    """

    name: ClassVar[str] = "drift"
    unit: ClassVar[str] = "ratio"
    needs: ClassVar[tuple[Need, ...]] = ("references",)
    fields: ClassVar[tuple[str, ...]] = ("drift",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """From g of every probe sample in float64."""
        state = snapshot.depth // 2
        g = references_in_view(exact_twin(snapshot))[state]
        if len(g) < 3:
            raise NotMeasured(f"drift wants at least 3 probe samples, got {len(g)}; raise probe.n")
        if not bool(g.any()):
            raise NotMeasured(f"zero-vector: the reference at state {state} is zero for every sample")
        ratio = drift_ratio(g)
        s, se, share = numbers([ratio.s, ratio.se, drift_at(ratio.s, 128)])
        return Measured({"drift": Drift(s=s, se=se, at_128=share, state=state)})
