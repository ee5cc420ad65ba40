"""State bridge: a net guesses the last state from each state; credit is the loss's gradient through the guess."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import FeedbackInit, Identity, Params, Proof, Reported, RuleState, Task
from creditscope.blocks.task import input_gradient
from creditscope.records.rule_card import Sketch
from creditscope.rules.auxiliary import AuxiliaryRule, hidden, linear, linear_inits
from creditscope.rules.block_rule import Seen


@dataclass(frozen=True)
class StateBridge(AuxiliaryRule):
    """c_l = ∂loss(readout(G(h_l, l)))/∂h_l, G learning h_L by regression on detached states; G(·, L) is the identity.

    G has one hidden layer of the states' width, one bias of it for each state, and its loss is the sum over l of
    ‖G(h_l, l) − h_L‖²/2d.

    Args:
        skip: Whether G is h plus the net, which starts small. Untrained it is then nearly the identity, and carries
            the gradient of the last state to every state: its cosine is high before anything was learned.
    """

    skip: bool = False

    name = "state-bridge"
    formula = "c_l = ∂loss(readout(G(h_l, l)))/∂h_l; G(h_l, l) learns h_L by regression; c_L = g_L"
    paper = "arXiv 2606.21126"
    injection = "the loss's gradient through a learned guess of h_L, at each state; exact gradient at h_L"
    sketch = Sketch(text="gradient through a learned guess of the last state, straight to each state", route="direct")
    identity = Identity(
        needs=("the exact gradient of the readout", "a learned net that guesses h_L from each state", "the label"),
        spares=("the weights of the blocks on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof("with G the true rest of the blocks it is bp", "test_a_bridge_that_is_the_true_rest_is_backprop"),
            Proof("exact at h_L", "test_what_is_exact_by_construction_is_the_gradient"),
            Proof(
                "untrained and with skip it carries g_L at a cosine above .99, without below .5",
                "test_with_skip_the_untrained_nets_carry_the_last_gradient_already",
            ),
        ),
        reported=(
            Reported(
                "ResMLP, penalty 0.01, 30 epochs, CIFAR-10",
                "45.3 %, deep cosine +.32, ρ +.40",
                "arXiv 2606.21126",
            ),
        ),
        differs=("no code is public; hidden layer, conditioning on l and loss are this package's own",),
    )

    def nets(self, task: Task, width: int) -> dict[str, FeedbackInit]:
        """G."""
        sd = 1 / math.sqrt(3 * width)
        return {
            "G.in.weight": FeedbackInit((width, width), sd, "uniform"),
            "G.level": FeedbackInit((task.blocks.depth, width), sd, "uniform"),
            **linear_inits("G.out", width, width, small=self.skip),
        }

    def guesses(self, state: RuleState, h: Tensor) -> Tensor:
        """G(h_l, l) for every l below L, and h_L itself.

        Args:
            state: The rule's state.
            h: All states, shape (samples, L + 1, width).
        """
        below, top = h[:, :-1], h[:, -1:]
        made = linear(state, "G.out", hidden(below @ state["G.in.weight"].T + state["G.level"]))
        return torch.cat([made + below if self.skip else made, top], 1)

    def credit(self, task: Task, params: Params, state: RuleState, seen: Seen) -> tuple[Tensor, ...]:
        """One pass of the readout on the guesses from all states."""
        (x, y), h = seen.batch, torch.stack(seen.states, 1)
        levels = h.shape[1]

        def loss(h: Tensor) -> Tensor:
            logits = task.tail(params, levels - 1, self.guesses(state, h).flatten(0, 1), x)
            return task.loss(logits, y.repeat_interleave(levels))

        return input_gradient(loss, h, task.blocks).unbind(1)

    def lesson(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Tensor:
        """Regression."""
        h = torch.stack(seen.states, 1)
        missed = self.guesses(state, h)[:, :-1] - h[:, -1:]
        return missed.square().mean(2).sum(1).mean() / 2

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Exact at h_L alone."""
        return (*(False,) * depth, True)
