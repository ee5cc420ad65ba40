"""Credit rules, one a file. A rule knows blocks and credit; it knows nothing of other runs.

Importing this package loads none of them: ``--help`` lists their names alone.
"""

from typing import TYPE_CHECKING

from creditscope.registry import Registry

if TYPE_CHECKING:
    from creditscope.blocks import CreditRule as CreditRule

RULES = Registry(
    "rule",
    "creditscope.rules",
    {
        "bp": "creditscope.rules.backprop:Backprop",
        "fa": "creditscope.rules.feedback_alignment:FeedbackAlignment",
        "fa-block": "creditscope.rules.block_feedback:BlockFeedback",
        "dfa": "creditscope.rules.direct_feedback:DirectFeedback",
        "usf": "creditscope.rules.sign_symmetric:UniformSign",
        "brsf": "creditscope.rules.sign_symmetric:BatchSign",
        "frsf": "creditscope.rules.sign_symmetric:FixedSign",
        "kp": "creditscope.rules.kolen_pollack:KolenPollack",
        "wm": "creditscope.rules.weight_mirror:WeightMirror",
        "drtp": "creditscope.rules.direct_target:DirectTarget",
        "sdfa": "creditscope.rules.direct_sign:DirectSign",
        "dkp": "creditscope.rules.direct_kolen_pollack:DirectKolenPollack",
        "fg-act": "creditscope.rules.forward_activity:ForwardActivity",
        "dtp": "creditscope.rules.target_propagation:TargetPropagation",
        "pc": "creditscope.rules.predictive_coding:PredictiveCoding",
        "state-bridge": "creditscope.rules.state_bridge:StateBridge",
        "credit-bridge": "creditscope.rules.credit_bridge:CreditBridge",
        "pepita": "creditscope.rules.pepita:Pepita",
        "fg": "creditscope.rules.forward_gradient:ForwardGradient",
        "local": "creditscope.rules.local_loss:LocalLoss",
        "ff": "creditscope.rules.forward_forward:ForwardForward",
        "bp-deep": "creditscope.rules.deep_supervision:DeepSupervision",
        "anchor": "creditscope.rules.anchor:Idle",
    },
)
