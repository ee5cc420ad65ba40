"""creditscope: train with backprop-free credit rules, measure what reaches every block, judge the claim.

Public names are resolved when first used, so that reading and judging logs never loads torch.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "Audit": "creditscope.protocol.audit",
    "Blocks": "creditscope.blocks",
    "Check": "creditscope.protocol.check",
    "CreditscopeError": "creditscope.errors",
    "Dataset": "creditscope.data",
    "EpochCheck": "creditscope.protocol.checks.point",
    "Evidence": "creditscope.protocol.evidence",
    "Grade": "creditscope.protocol.evidence",
    "Monitor": "creditscope.protocol.monitor",
    "ProbeCheck": "creditscope.protocol.checks.point",
    "Protocol": "creditscope.protocol.presets",
    "RunLog": "creditscope.records",
    "RunSpec": "creditscope.records",
    "audit": "creditscope.protocol.audit",
    "audit_model": "creditscope.scope.audit_model",
    "check_locality": "creditscope.scope.locality",
    "frozen_copy": "creditscope.scope.audit_model",
    "load_data": "creditscope.data",
    "load_logs": "creditscope.records.load",
    "log_to": "creditscope.integrations.sink",
    "protocol_named": "creditscope.protocol.presets",
    "specs": "creditscope.plans.specs",
    "sweep": "creditscope.execution.sweep",
    "train": "creditscope.execution.local",
    "watch": "creditscope.scope.watch",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'creditscope' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
