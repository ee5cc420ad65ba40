"""How long a sweep will take: one run of each rule is timed on this device, and scaled by the number of runs."""

import torch

from creditscope.engine.estimate import estimate
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.execution.job import dataset
from creditscope.execution.sweep import SweepPlan


def sweep_seconds(plan: SweepPlan, device: torch.device) -> float:
    """Seconds that the fleets of a plan would take one after another. Stacked runs share work, so mostly too many.

    Args:
        plan: The plan.
        device: The device to time on.
    """
    known: dict[tuple[str, str, bool], float] = {}
    total = 0.0
    for job in plan.jobs:
        for spec in job.specs:
            key = (spec.stack_key, spec.rule, spec.is_baseline)
            if key not in known:
                known[key] = estimate(Fleet([spec], dataset(job.data, job.data_dir), default_model, device)).total
            total += known[key]
    return total
