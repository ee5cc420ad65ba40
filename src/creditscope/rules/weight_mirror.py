"""Weight mirror: every few steps each linear map hears noise alone, and its feedback learns from the response."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, Identity, Moment, Params, Proof, Reported, RuleState, Step, Task
from creditscope.errors import BadInput
from creditscope.rules.linear_maps import linear_maps
from creditscope.rules.transport import LearnedFeedback, weight_of

_MIRROR = "mirror"
_NORMS = ("current", "initial", "none")


@dataclass(frozen=True)
class WeightMirror(LearnedFeedback):
    """B += rate·mean over the batch of (centred response)ᵀ·noise, then B at W's norm (Akrout et al. 2019).

    The weights learn in a mirror step as in any other, by the B from before it. A convolution is mirrored on one
    patch a sample: to it a patch is a vector.

    Args:
        every: Steps from one mirror phase to the next; the first step has one.
        rate: How much of the product B takes in.
        norm: Where B is kept: ``current``: at the norm of W now; ``initial``: at its own first norm, which was drawn
            like W's; ``none``: as it grows.
    """

    every: int = 10
    rate: float = 0.1
    norm: str = "current"

    name = "wm"
    formula = "the backward pass of BP with W replaced by B; B += rate·mean(response × noise), at W's norm"
    paper = "Akrout et al. 2019"
    identity = Identity(
        needs=(
            "the error at the output",
            "a learned matrix per linear map",
            "every few steps noise in each map alone",
            "W's norm",
            "a backward pass through every block",
        ),
        spares=("the weights on the way back, but for their norm",),
        proofs=(
            Proof(
                "on a linear map E ΔB = rate·(N − 1)/N·W",
                "test_the_mean_of_many_phases_is_the_weight_less_one_sample",
            ),
            Proof("B turns towards W", "test_feedback_turns_towards_the_weights"),
        ),
        reported=(Reported("MLP 784-500-10, MNIST", "98.49 %, angle of δ 3.2°", "logs of Akrout et al. 2019"),),
        differs=(
            "makrout/Deep-Learning-without-Weight-Transport mirrors through bias and sigmoid, uniform noise, no "
            "centring, and rescales a copy of B that it then drops",
        ),
    )

    def __post_init__(self) -> None:
        if self.every < 1:
            raise BadInput(f"option every of rule wm: wanted at least 1 step, got {self.every}")
        if self.norm not in _NORMS:
            raise BadInput(f"option norm of rule wm: wanted {', '.join(_NORMS)}, got {self.norm!r}")

    def phase(self, moment: Moment) -> str:
        """A mirror phase every few steps."""
        return _MIRROR if moment.step % self.every == 0 else ""

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """One input a sample for each map."""
        return {f"B.{name}": (batch, weight[0].numel()) for name, weight, _ in linear_maps(task, params)}

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The transport step; in a mirror phase every B learns from its own map's answer to noise."""
        step = super().step(task, params, state, batch, noise, phase)
        if phase != _MIRROR:
            return step
        weights = {**task.fixed, **params}
        grown = {
            entry: matrix + self.rate * mirrored(weights[weight_of(entry)], noise[entry])
            for entry, matrix in state.items()
        }
        if self.norm == "none":
            return step._replace(state=grown)
        kept = {name: weights[weight_of(name)] if self.norm == "current" else b for name, b in state.items()}
        return step._replace(state={name: b * (kept[name].norm() / b.norm()) for name, b in grown.items()})


def mirrored(weight: Tensor, heard: Tensor) -> Tensor:
    """Mean over the batch of (centred response)ᵀ·noise, in the weight's shape: (N − 1)/N·W in expectation.

    Args:
        weight: W.
        heard: The noise, one input of the map a sample.
    """
    response = heard @ weight.flatten(1).T
    return ((response - response.mean(0)).T @ heard / len(heard)).reshape(weight.shape)
