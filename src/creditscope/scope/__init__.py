"""Audit anything: a user's own model and loop, measured and judged as ours are."""

from creditscope.scope.audit_model import audit_model, frozen_copy
from creditscope.scope.credit import BackwardCredit, CreditAdapter, backward_credit, rule_credit
from creditscope.scope.locality import Locality, check_locality
from creditscope.scope.watch import Scope, Stopped, watch

__all__ = [
    "BackwardCredit",
    "CreditAdapter",
    "Locality",
    "Scope",
    "Stopped",
    "audit_model",
    "backward_credit",
    "check_locality",
    "frozen_copy",
    "rule_credit",
    "watch",
]
