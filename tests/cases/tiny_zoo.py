"""A zoo of one small part on the synthetic data: a few runs of a second."""

from creditscope.plans.zoo import Part
from creditscope.records import ProbeSpec

FIELDS = {
    "width": 6,
    "depth": 2,
    "epochs": 2,
    "augment": "none",
    "batch": 256,
    "probe": ProbeSpec(n=16, batch=16, epochs=(), redraws=19, directions=2),
}


def tiny_zoo(rules=("bp", "dfa", "kp"), extra=()) -> dict[str, Part]:
    return {"resmlp": Part("resmlp", "synthetic", FIELDS, rules, extra, tuning_epochs=1, held_out=1000)}
