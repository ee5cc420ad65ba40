"""Audit anything: a user's own model and loop, measured and judged as ours are."""

from creditscope.scope.audit_model import audit_model, frozen_copy
from creditscope.scope.credit import BackwardCredit, CreditAdapter, backward_credit, rule_credit
from creditscope.scope.identify import identify
from creditscope.scope.identity import Identity
from creditscope.scope.judge import judge
from creditscope.scope.locality import Locality, check_locality
from creditscope.scope.updates import audit_updates
from creditscope.scope.watch import Scope, Stopped, watch

__all__ = [
    "BackwardCredit",
    "CreditAdapter",
    "Identity",
    "Locality",
    "Scope",
    "Stopped",
    "audit_model",
    "audit_updates",
    "backward_credit",
    "check_locality",
    "frozen_copy",
    "identify",
    "judge",
    "rule_credit",
    "watch",
]
