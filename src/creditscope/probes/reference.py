"""Probes of the reference gradient: is it usable, where does torch's clamp begin, is it common to all samples?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from creditscope.blocks import Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.functional.clamp import PROBE_SIZES, clamp_onset, shrink_factor
from creditscope.probes.functional.drift import drift_at, drift_ratio
from creditscope.probes.functional.fidelity import allowed_error, confident_tenth, infidelity
from creditscope.probes.functional.norms import norm_stats, vector_norms
from creditscope.probes.probe import Measured, Need, Probe, by_state, float64_copy, lists, numbers, references_in_view
from creditscope.records.measured import ClampOnset, Drift, Fidelity


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
        double = float64_copy(snapshot)
        gaps, vanished = by_state(_infidelities, references_in_view(snapshot), references_in_view(double)).unbind(dim=1)
        median = gaps.nanquantile(0.5, dim=1)
        classes = not snapshot.probe.y.is_floating_point() and double.observation.logits.shape[-1] > 1
        among = gaps[:, confident_tenth(double.observation.logits)] if classes else gaps
        confident = among.nanquantile(0.5, dim=1)
        rows = lists(1 - median, 1 - confident, allowed_error(median), vanished.sum(dim=1))
        return Measured(
            {
                "fidelity": Fidelity(
                    median=rows[0],
                    confident=rows[1] if classes else None,
                    error=rows[2],
                    n_zero=[int(count or 0) for count in rows[3]],
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
        onset = clamp_onset(norm_stats(by_state(vector_norms, references_in_view(snapshot))).median)
        found, *factors = lists(onset, *(shrink_factor(onset, n) for n in PROBE_SIZES))
        shrink = dict(zip(map(str, PROBE_SIZES), factors, strict=True))
        return Measured({"clamp": ClampOnset(onset=found, shrink=shrink)})


def _infidelities(run: Tensor, exact: Tensor) -> Tensor:
    """1 − φ and whether g vanished, side by side: shape (states, 2, n)."""
    gap, vanished = infidelity(run, exact)
    return torch.stack([gap, vanished.double()], dim=1)


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
        g = references_in_view(float64_copy(snapshot))[state]
        if len(g) < 3:
            raise NotMeasured(f"drift wants at least 3 probe samples, got {len(g)}; raise probe.n")
        ratio = drift_ratio(g)
        s, se, share, any_ = numbers([ratio.s, ratio.se, drift_at(ratio.s, 128), g.any().double()])
        if not any_:
            raise NotMeasured(f"zero-vector: the reference at state {state} is zero for every sample")
        return Measured({"drift": Drift(s=s, se=se, at_128=share, state=state)})
