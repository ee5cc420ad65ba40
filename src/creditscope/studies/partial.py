"""The partial audit: what a verdict is worth when a log holds only ‖h_L‖, ‖g_2‖ and accuracy."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from creditscope.errors import BadInput
from creditscope.protocol.audit import Audit, audit
from creditscope.quantities.per_epoch import ACCURACY, HIDDEN, REFERENCE
from creditscope.records import RunLog, RunSpec
from creditscope.records.layouts import import_logs
from creditscope.records.units import PUBLISHED_PROBE_SIZE

STATE = 2
# What stands above a partial audit that lies beside the report of the same runs.
REDUCED = (
    "These are the dfa-rms runs of the report beside this file, reduced: of each epoch only ‖h_L‖, ‖g_2‖ and accuracy "
    "are kept, as published logs hold them, and the frozen baseline is a bare number. What is open here was measured "
    "there; this shows what a verdict is worth without it."
)


def partial_audit(logs: Sequence[RunLog]) -> Audit:
    """Reduce the dfa-rms runs to the published penalty layout, and judge what is left against a bare baseline number.

    The layout keeps neither the model nor its settings and a bare number belongs to one of them, so that runs of
    several settings cannot be judged together.

    Args:
        logs: Full logs; those of dfa-rms and of its frozen twins are taken, all of one setting.
    """
    local = [log for log in logs if _is_dfa_rms(log.spec) and log.last is not None]
    frozen = [ACCURACY.last(log) for log in local if log.spec.is_baseline]
    known = [value for value in frozen if value is not None]
    claims = [log for log in local if not log.spec.is_baseline and (log.spec.depth or 0) >= STATE]
    if not claims:
        raise BadInput("a partial audit wants runs of dfa-rms, got none")
    settings = len({log.spec.match_key for log in local})
    if settings > 1:
        raise BadInput(f"a partial audit wants dfa-rms runs of one setting, got {settings}; pass those of one preset")
    reduced = [import_logs(log.name, penalty_layout(log))[0] for log in claims]
    return audit(reduced, "published", baseline=fmean(known) if known else None)


def _is_dfa_rms(spec: RunSpec) -> bool:
    """Whether a run is of the method that the published penalty experiments train."""
    return spec.rule == "dfa" and spec.credit_norm == "rms"


def penalty_layout(log: RunLog) -> dict[str, Any]:
    """A run as the published penalty layout holds it: mean-reduced gradients at N = 128, no h_0, no depth.

    Args:
        log: A full log.
    """
    rows = [
        {
            "epoch": row.epoch,
            "h_L_norm": HIDDEN.at(row, log.units),
            "g_2_norm": _mean_reduced(REFERENCE.at(row, log.units, STATE)),
            "acc_eval": ACCURACY.at(row, log.units),
        }
        for row in log.epochs
    ]
    return {
        "method": log.spec.method,
        "seed": log.spec.seed,
        "epochs": log.spec.epochs,
        "log": rows,
        "final_test_acc": ACCURACY.last(log),
    }


def _mean_reduced(norm: float | None) -> float | None:
    return None if norm is None else norm / PUBLISHED_PROBE_SIZE
