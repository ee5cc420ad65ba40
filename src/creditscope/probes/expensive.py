"""The expensive set: every probe on its own; what cannot be measured is named and the rest go on."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from creditscope.blocks import Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.gradient_null import GradientNull
from creditscope.probes.guards import Guards
from creditscope.probes.nulls import FeedbackNull
from creditscope.probes.parameters import GradientCosineProbe, StepDescentProbe
from creditscope.probes.perturbation import NudgeProbe, RhoProbe
from creditscope.probes.precision import full_precision
from creditscope.probes.probe import Probe
from creditscope.probes.reference import ClampProbe, DriftProbe, FidelityProbe
from creditscope.probes.representation import IdleProbe, ParticipationProbe, ReadoutProbe
from creditscope.records.rows import ProbeRow


def expensive_probes(redraws: int = 999, directions: int = 32, keep_draws: bool = False) -> tuple[Probe, ...]:
    """The registry of the expensive set.

    Args:
        redraws: K of the fresh-feedback nulls.
        directions: M of ρ.
        keep_draws: Whether null values go into the row.
    """
    return (
        FidelityProbe(),
        ClampProbe(),
        FeedbackNull(redraws, keep_draws),
        RhoProbe(directions),
        NudgeProbe(),
        DriftProbe(),
        GradientCosineProbe(),
        GradientNull(redraws, keep_draws),
        StepDescentProbe(),
        ReadoutProbe(),
        IdleProbe(),
        ParticipationProbe(),
    )


def measure_expensive(snapshot: Snapshot, redraws: int, directions: int, keep_draws: bool) -> ProbeRow:
    """Measure the expensive set of one run at one moment.

    Global randomness, buffers and ``.grad`` are left unchanged: every draw follows from the snapshot's seed. TF32 and
    autocast are off.

    Args:
        snapshot: The run.
        redraws: K of the fresh-feedback nulls.
        directions: M of ρ.
        keep_draws: Whether null values go into the row.
    """
    # A model left in training mode may draw dropout masks from the global generator.
    devices = [p.device for p in snapshot.params.values() if p.is_cuda][:1]
    with torch.random.fork_rng(devices):
        return measure_probes(snapshot, expensive_probes(redraws, directions, keep_draws))


def measure_probes(snapshot: Snapshot, probes: Sequence[Probe], independent: bool | None = None) -> ProbeRow:
    """Measure some probes of one run at one moment; what a model draws is the caller's to guard.

    Args:
        snapshot: The run.
        probes: Which.
        independent: Whether its samples are independent, where that was found before; None: found here.
    """
    began = time.monotonic()
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    guards = Guards(snapshot, independent)
    with torch.no_grad(), full_precision():
        for probe in probes:
            try:
                guards.check(probe.needs)
                measured = probe.measure(snapshot)
            except Exception as error:  # one probe's failure must not cost the others
                reasons |= dict.fromkeys(probe.fields, _reason(error))
            else:
                values |= measured.values
                reasons |= measured.not_measured
    spent = time.monotonic() - began
    return ProbeRow(epoch=snapshot.epoch, step=snapshot.step, not_measured=reasons, time_probe=spent, **values)


def _reason(error: Exception) -> str:
    if isinstance(error, NotMeasured):
        return str(error)
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
