"""Credit rules, one a file. A rule knows blocks and credit; it knows nothing of runs."""

from creditscope.blocks import CreditRule
from creditscope.errors import BadInput, did_you_mean
from creditscope.records.method import RULES, CreditNorm
from creditscope.rules.backprop import Backprop
from creditscope.rules.block_feedback import BlockFeedback
from creditscope.rules.direct_feedback import DirectFeedback
from creditscope.rules.feedback_alignment import FeedbackAlignment


def build_rule(rule: str, credit_norm: CreditNorm = "none") -> CreditRule:
    """The rule of a method name.

    Args:
        rule: One of ``RULES``.
        credit_norm: ``rms`` for dfa-rms.
    """
    rules: dict[str, CreditRule] = {
        "bp": Backprop(),
        "fa": FeedbackAlignment(),
        "fa-exact-head": FeedbackAlignment(exact_head=True),
        "fa-block": BlockFeedback(),
        "dfa": DirectFeedback(credit_norm),
    }
    if rule not in rules:
        raise BadInput(f"unknown rule {rule!r}; {did_you_mean(rule, RULES)}")
    if credit_norm == "rms" and rule != "dfa":
        raise BadInput(f"credit_norm 'rms' is defined for dfa only, got rule {rule!r}; use 'none'")
    return rules[rule]


__all__ = ["Backprop", "BlockFeedback", "CreditRule", "DirectFeedback", "FeedbackAlignment", "build_rule"]
