"""Sign-symmetric rules: the backward weight has the signs of the weight now, and magnitudes of its own."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.blocks import Identity, Params, Proof, Redraw, Reported, RuleState, Task
from creditscope.errors import BadInput
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.linear_maps import linear_maps
from creditscope.rules.transport import LIKE_WEIGHTS, TransportRule, drawn_like_weights, weight_of


class SignSymmetric(TransportRule):
    """B = (magnitudes) ⊙ sign(W), W as it is now (Liao et al. 2016; Moskovitz et al. 2018; Xiao et al. 2019).

    A fresh feedback, for the null, has signs that know nothing of W.
    """

    injection = "gradient at the logits, back through the signs of each weight, head included"

    @abstractmethod
    def magnitude(self, state: RuleState, noise: Mapping[str, Tensor], name: str) -> Tensor:
        """|B| of one map.

        Args:
            state: The rule's state.
            noise: Fresh random numbers; empty where a probe asks.
            name: Module path of the map.
        """

    def matrices(
        self, task: Task, params: Params, state: RuleState, noise: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Magnitudes with the signs of the weights; a redrawn B where the null gives one."""
        known = {**task.fixed, **params}
        found = {}
        for entry in state:
            kind, _, name = entry.partition(".")
            if kind == "s":
                drawn = state.get(f"B.{name}")
                made = self.magnitude(state, noise, name) * known[weight_of(f"B.{name}")].sign()
                found[f"B.{name}"] = made if drawn is None else drawn
        return found

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """s of each map: the root mean square of its initial weights, which stands for their nominal spread."""
        return {f"s.{name}": _spread(name, weight) for name, weight in _maps(task, params)}

    def redraw(self, task: Task, params: Params, state: RuleState) -> Redraw:
        """Magnitudes as the rule's own, signs at random."""

        def draw(generator: torch.Generator, count: int) -> RuleState:
            return {f"B.{name}": self.fresh(weight, state, name, generator, count) for name, weight in maps}

        maps = _maps(task, params)
        return draw

    def fresh(self, weight: Tensor, state: RuleState, name: str, generator: torch.Generator, count: int) -> Tensor:
        """Matrices whose signs know nothing of W: normal ones, as fa draws them.

        Args:
            weight: W at initialisation.
            state: The rule's state.
            name: Module path of the map.
            generator: Where the numbers come from.
            count: How many.
        """
        drawn = torch.randn((count, *weight.shape), generator=generator, device=generator.device)
        return drawn.to(weight).mul_(state[f"s.{name}"])


@dataclass(frozen=True)
class UniformSign(SignSymmetric):
    """B = s·sign(W), s the spread of the layer's initial weights (Liao et al. 2016)."""

    name = "usf"
    formula = "the backward pass of BP with every weight W replaced by s·sign(W), s the layer's initial spread"
    paper = "Liao, Leibo & Poggio 2016"
    feedback_spec = FeedbackSpec(dist="signs of the weights", scale="root mean square of the initial weights")
    sketch = Sketch(text="sign of the weight in every linear map", route="chain", random=("head", "norm", "block"))
    identity = Identity(
        needs=("the error at the output", "the sign of every weight", "a backward pass through every block"),
        spares=("the size of the weights on the way back",),
        proofs=(
            Proof(
                "with every |W| = s it is bp",
                "test_uniform_signs_of_weights_that_are_all_of_one_size_are_backprop",
            ),
        ),
        reported=(
            Reported("LeNet, Fashion-MNIST", "9.69 % error", "BioTorch"),
            Reported("ResNet-20, CIFAR-10, 250 epochs, Adam, one run", "10.59 % error", "BioTorch"),
        ),
        differs=(
            "jsalbert/biotorch sends sign(W) unscaled unless told otherwise, and then at Xavier's spread; here s is "
            "the root mean square of the layer's initial weights",
        ),
    )

    def magnitude(self, state: RuleState, noise: Mapping[str, Tensor], name: str) -> Tensor:
        """s."""
        return state[f"s.{name}"]

    def fresh(self, weight: Tensor, state: RuleState, name: str, generator: torch.Generator, count: int) -> Tensor:
        """±s."""
        return super().fresh(weight, state, name, generator, count).sign_().mul_(state[f"s.{name}"])


class DrawnSign(SignSymmetric):
    """Magnitudes |M|, M normal with the spread of the layer's initial weights."""

    sketch = Sketch(
        text="sign of the weight, random size, in every linear map", route="chain", random=("head", "norm", "block")
    )
    feedback_spec = LIKE_WEIGHTS

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """s and one M of each map."""
        spreads = super().init(task, params, generator)
        drawn = {
            f"M.{entry.removeprefix('B.')}": each.standard(generator)
            for entry, each in drawn_like_weights(task, params).items()
        }
        like = next(iter(params.values()))
        return spreads | {name: (m * spreads[f"s.{name[2:]}"].double().cpu()).to(like) for name, m in drawn.items()}

    def magnitude(self, state: RuleState, noise: Mapping[str, Tensor], name: str) -> Tensor:
        """|M|."""
        return state[f"M.{name}"].abs()


@dataclass(frozen=True)
class FixedSign(DrawnSign):
    """B = |M| ⊙ sign(W), M drawn once (Moskovitz et al. 2018)."""

    name = "frsf"
    formula = "the backward pass of BP with every weight W replaced by |M|·sign(W), M random and fixed"
    paper = "Moskovitz, Litwin-Kumar & Abbott 2018"
    identity = Identity(
        needs=(
            "the error at the output",
            "the sign of every weight",
            "a random matrix per linear map",
            "a backward pass through every block",
        ),
        spares=("the size of the weights on the way back",),
        proofs=(Proof("with M = W it is bp", "test_fixed_magnitudes_that_are_the_weights_are_backprop"),),
        reported=(
            Reported("LeNet, Fashion-MNIST", "9.61 % error", "BioTorch"),
            Reported("ResNet-20, CIFAR-10, 250 epochs, Adam, one run", "11.22 % error", "BioTorch"),
        ),
        differs=(
            "jsalbert/biotorch draws M with both signs, never takes |M|, and multiplies sign(W) into the stored matrix "
            "again at every forward pass: B has random signs, which do not follow W",
        ),
    )


@dataclass(frozen=True)
class BatchSign(DrawnSign):
    """B = |M| ⊙ sign(W), M drawn again at each step (Liao et al. 2016). Probes see one M that is kept for them."""

    name = "brsf"
    formula = "the backward pass of BP with every weight W replaced by |M|·sign(W), M drawn again at each step"
    paper = "Liao, Leibo & Poggio 2016"
    identity = Identity(
        needs=(
            "the error at the output",
            "the sign of every weight",
            "a random matrix per linear map",
            "a backward pass through every block",
        ),
        spares=("the size of the weights on the way back",),
        proofs=(Proof("each step's B has the signs of W", "test_equals_the_backward_written_by_hand"),),
        reported=(
            Reported("LeNet, Fashion-MNIST", "10.02 % error", "BioTorch"),
            Reported("ResNet-20, CIFAR-10, 250 epochs, Adam, one run", "11.08 % error", "BioTorch"),
        ),
        differs=("jsalbert/biotorch draws M with both signs and never takes |M|: B has random signs",),
    )

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """One number for each weight."""
        return {f"M.{name}": tuple(weight.shape) for name, weight in _maps(task, params)}

    def magnitude(self, state: RuleState, noise: Mapping[str, Tensor], name: str) -> Tensor:
        """|M| of this step."""
        fresh = noise.get(f"M.{name}")
        return super().magnitude(state, noise, name) if fresh is None else (fresh * state[f"s.{name}"]).abs()


def _spread(name: str, weight: Tensor) -> Tensor:
    spread = weight.double().square().mean().sqrt()
    if not spread > 0:
        raise BadInput(f"sign-symmetric feedback cannot be sized like {name!r}: its weights are 0; start it at others")
    return spread.to(weight)


def _maps(task: Task, params: Params) -> list[tuple[str, Tensor]]:
    return [(name, weight) for name, weight, _ in linear_maps(task, params)]
