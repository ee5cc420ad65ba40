"""Difference target propagation: each block gets a target, carried down by a net that learned to invert the block."""

from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import FeedbackInit, Identity, Params, Proof, RuleState, Task
from creditscope.errors import BadInput
from creditscope.records.rule_card import Sketch
from creditscope.rules.auxiliary import AuxiliaryRule, hidden, linear, linear_inits
from creditscope.rules.block_rule import Seen


@dataclass(frozen=True)
class TargetPropagation(AuxiliaryRule):
    """ĥ_L = h_L − β·g_L, ĥ_l = h_l + G_l(ĥ_{l+1}) − G_l(h_{l+1}), c_l = h_l − ĥ_l (Lee et al. 2015).

    G_l has one hidden layer of the states' width. It learns to give back what went into block l, by
    ‖G_l(F_l(h_l + ε)) − (h_l + ε)‖²/2d, ε normal.

    Args:
        beta: β. c_L is β·g_L.
        sigma: Standard deviation of ε over the root mean square of the sample's h_l.
        skip: Whether G_l is h plus the net, which starts small. Untrained it is then nearly the identity, and carries
            the gradient of the last state to every state: its cosine is high before anything was learned.
    """

    beta: float = 1.0
    sigma: float = 0.1
    skip: bool = False

    name = "dtp"
    formula = "ĥ_L = h_L − β·g_L, ĥ_l = h_l + G_l(ĥ_{l+1}) − G_l(h_{l+1}), c_l = h_l − ĥ_l; G_l learned to invert F_l"
    paper = "Lee et al. 2015"
    injection = "exact gradient at h_L; a learned inverse of each block carries the target from state to state"
    sketch = Sketch(text="exact at the last state, then one learned inverse a block", route="chain", random=("block",))
    identity = Identity(
        needs=(
            "the exact gradient at the last state",
            "a learned inverse per block",
            "a second pass through each block, with noise",
        ),
        spares=("the weights of the blocks on the way back", "a backward pass through more than one block"),
        proofs=(
            Proof(
                "linear invertible blocks, G = F⁻¹: c_l = β·(JᵀJ)⁻¹·g_l, J the rest of the blocks",
                "test_true_inverses_of_linear_blocks_give_the_gauss_newton_step",
            ),
            Proof("orthogonal blocks: c_l = β·g_l", "test_true_inverses_of_orthogonal_blocks_give_the_gradient"),
            Proof("exact at h_L", "test_what_is_exact_by_construction_is_the_gradient"),
            Proof(
                "untrained and with skip it carries g_L at a cosine above .99, without below .5",
                "test_with_skip_the_untrained_nets_carry_the_last_gradient_already",
            ),
        ),
        differs=(
            "ernoult/scalingDTP takes the first target at the logits and its G is the transposed architecture; its "
            "default trains G towards the transposed Jacobian, several steps a batch, and only vanilla_dtp.py trains "
            "an inverse, as here, at noise of absolute size; its update is that of ½‖h − ĥ‖², as here",
        ),
    )

    def __post_init__(self) -> None:
        for option, value in (("beta", self.beta), ("sigma", self.sigma)):
            if not value > 0:
                raise BadInput(f"option {option} of rule dtp: wanted a number above 0, got {value:g}")

    def nets(self, task: Task, width: int) -> dict[str, FeedbackInit]:
        """G_0..G_{L−1}."""
        inits: dict[str, FeedbackInit] = {}
        for level in range(task.blocks.depth):
            inits |= linear_inits(f"G.{level}.in", width, width)
            inits |= linear_inits(f"G.{level}.out", width, width, small=self.skip)
        return inits

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """ε of each block, over its standard deviation."""
        return {f"G.{level}": (batch, *task.shapes[level]) for level in range(task.blocks.depth)}

    def inverse(self, state: RuleState, level: int, h: Tensor) -> Tensor:
        """G_l.

        Args:
            state: The rule's state.
            level: Which block it inverts.
            h: h_{l+1}.
        """
        made = linear(state, f"G.{level}.out", hidden(linear(state, f"G.{level}.in", h)))
        return made + h if self.skip else made

    def credit(self, task: Task, params: Params, state: RuleState, seen: Seen) -> tuple[Tensor, ...]:
        """From the top down."""
        signals = [self.beta * task.top_gradient(params, seen.states[-1], seen.batch)]
        for level in reversed(range(task.blocks.depth)):
            above = seen.states[level + 1]
            there, here = self.inverse(state, level, torch.stack([above - signals[-1], above]))
            signals.append(here - there)
        return tuple(reversed(signals))

    def lesson(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Tensor:
        """What each inverse misses, at states with noise."""
        *below, top = seen.states
        noisy = [
            h + self.sigma * h.square().mean(1, keepdim=True).sqrt() * seen.noise[f"G.{level}"]
            for level, h in enumerate(below)
        ]
        made = task.apart(params, dict(enumerate([*noisy, top])), seen.batch.x[:1]).states[1:]
        missed = [self.inverse(state, level, h) - noisy[level] for level, h in enumerate(made)]
        return torch.stack(missed).square().mean(2).sum(0).mean() / 2

    def exact(self, depth: int) -> tuple[bool, ...]:
        """At h_L it points along the gradient."""
        return (*(False,) * depth, True)
