"""A tiny real study: every method of the demo, trained for two epochs in a few seconds."""

from dataclasses import replace

from creditscope.plans.presets import PRESETS, SEEDS, Preset
from creditscope.records import OptimiserSpec, ProbeSpec

FIELDS = {
    "width": 12,
    "depth": 3,
    "epochs": 2,
    "batch": 500,
    "optimiser": OptimiserSpec(lr=1e-2),
    "probe": ProbeSpec(n=48, batch=16, epochs=(0,), redraws=19, directions=4),
}


def tiny(name: str = "demo") -> Preset:
    """A preset of ours, shrunk."""
    return replace(PRESETS[name], fields={**PRESETS[name].fields, **FIELDS}, seeds=SEEDS)
