"""Credit bridge: a value net learns the loss to come from each state; credit is its gradient."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import FeedbackInit, Identity, Moment, Params, Proof, Reported, RuleState, Task
from creditscope.blocks.task import input_gradient
from creditscope.records.rule_card import Sketch
from creditscope.rules.auxiliary import AuxiliaryRule, hidden
from creditscope.rules.block_rule import Seen
from creditscope.rules.direct_feedback import DirectFeedback

_START = "dfa"
_DFA = DirectFeedback()


@dataclass(frozen=True)
class CreditBridge(AuxiliaryRule):
    """c_l = ∂V(h_l, l, y)/∂h_l, V a net with one hidden layer of the states' width; dfa in the first fifth.

    V learns by ½Σ_l (V(h_l, l) − V(h_{l+1}, l + 1))² and ½‖∂V/∂h_L − g_L‖², and both values of a residual move: with
    the later one held fixed, as a target, one net for all states runs away from itself. Each l has hidden biases of
    its own, and each y an output of its own: a bias for y would not reach ∂V/∂h where the states are large. V learns
    from the first step on; dfa has fixed matrices of its own.
    """

    name = "credit-bridge"
    formula = "c_l = ∂V(h_l, l, y)/∂h_l; V(h_l, l) learns V(h_{l+1}, l+1), and ∂V/∂h_L learns g_L; dfa at first"
    paper = "arXiv 2606.21126"
    injection = "the gradient of a learned value of each state; in the first fifth of training dfa's e·B_l"
    sketch = Sketch(text="gradient of a learned value, straight to each state", route="direct")
    identity = Identity(
        needs=(
            "the label",
            "a learned value net, read at each state",
            "the exact gradient at the last state, to learn by",
            "at first the error at the output and a fixed random matrix per block",
        ),
        spares=("the weights on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof("with V the loss that is to come it is bp", "test_a_value_that_is_the_loss_to_come_is_backprop"),
            Proof("in the first fifth of training it is dfa", "test_the_first_fifth_is_direct_feedback_alignment"),
        ),
        reported=(
            Reported(
                "ResMLP, penalty 0.01, 30 epochs, CIFAR-10",
                "36.0 %, deep cosine +.68, ρ +.46",
                "arXiv 2606.21126",
            ),
        ),
        differs=("no code is public; hidden layer, conditioning on l and y, and the start are this package's own",),
    )

    def phase(self, moment: Moment) -> str:
        """dfa in the first fifth."""
        return _START if 5 * moment.step < moment.steps_per_epoch * moment.epochs else ""

    def nets(self, task: Task, width: int) -> dict[str, FeedbackInit]:
        """V."""
        sd = 1 / math.sqrt(3 * width)
        shapes = {
            "V.in": (width, width),
            "V.level": (task.blocks.depth + 1, width),
            "V.out": (task.outputs, width),
        }
        return {name: FeedbackInit(shape, sd, "uniform") for name, shape in shapes.items()}

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """V's, and dfa's matrices."""
        return super().feedback_inits(task, params) | _DFA.feedback_inits(task, params)

    def values(self, state: RuleState, h: Tensor, y: Tensor) -> Tensor:
        """V(h_l, l, y), shape (samples, L + 1).

        Args:
            state: The rule's state.
            h: All states, shape (samples, L + 1, width).
            y: Labels.
        """
        outputs = state["V.out"]
        own = (y.unsqueeze(-1) == torch.arange(len(outputs), device=y.device)).to(h.dtype) @ outputs
        return (hidden(h @ state["V.in"].T + state["V.level"]) * own.unsqueeze(1)).sum(2)

    def credit(self, task: Task, params: Params, state: RuleState, seen: Seen) -> tuple[Tensor, ...]:
        """dfa's signals at first, then V's gradients."""
        if seen.phase == _START:
            return _DFA.signals(task, params, state, seen.error, seen.states[-1], seen.batch)
        h = torch.stack(seen.states, 1)
        return input_gradient(lambda h: self.values(state, h, seen.batch.y), h, task.blocks).unbind(1)

    def lesson(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Tensor:
        """Bridge residual and terminal gradient matching."""
        y, h = seen.batch.y, torch.stack(seen.states, 1)
        values = self.values(state, h, y)
        residual = (values[:, :-1] - values[:, 1:]).square().sum(1)
        last = input_gradient(lambda h: self.values(state, h, y)[:, -1], h, task.blocks)[:, -1]
        wanted = task.top_gradient(params, seen.states[-1], seen.batch)
        return (residual + (last - wanted).square().sum(1)).mean() / 2
