"""Auxiliary nets: what a rule learns beside the model, by a loss of its own and under the run's optimiser."""

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping

import torch
from torch import Tensor
from torch.func import grad
from torch.nn import functional

from creditscope.blocks import FeedbackInit, Params, RuleState, Task
from creditscope.blocks.rule import FeedbackRule
from creditscope.records import FeedbackSpec
from creditscope.rules.block_rule import Assigned, Seen, SignalRule
from creditscope.rules.chain import one_width, require_chain

# Standard deviation of a net's last map where its untrained form shall be close to the identity.
SMALL = 0.01


class AuxiliaryRule(SignalRule, FeedbackRule):
    """A rule whose credit comes from nets that learn; a subclass gives the nets, the credit and the nets' loss.

    The nets read vectors of one width, and every one learns in every run, also in those whose blocks stand still.
    """

    learns = True
    feedback_spec = FeedbackSpec(dist="like-init", scale="as a linear map starts: uniform on ±1/sqrt(inputs)")

    @abstractmethod
    def nets(self, task: Task, width: int) -> dict[str, FeedbackInit]:
        """How the nets start, entry by entry.

        Args:
            task: What is trained.
            width: Of the states.
        """

    @abstractmethod
    def lesson(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Tensor:
        """The loss that the nets learn by, the mean over the batch.

        Args:
            task: What is trained.
            params: Parameters now.
            state: The rule's state, the nets among it.
            seen: The forward pass; its states are constants here.
        """

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """Those of the nets."""
        return self.nets(task, one_width(self.name, task))

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """Drawn on the CPU and in float64; refused for a model that is no chain of vectors."""
        state = super().init(task, params, generator)
        require_chain(self.name, task, params)
        return state

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """Every net."""
        return frozenset(name for name in state if not name.startswith("B."))

    def assign(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Assigned:
        """The credit, and the gradient of the nets' own loss."""
        nets = {name: state[name] for name in sorted(self.trained(state, ()))}
        grads = grad(lambda nets: self.lesson(task, params, {**state, **nets}, seen))(nets)
        return Assigned(self.credit(task, params, state, seen), grads)


def linear_inits(name: str, outputs: int, inputs: int, small: bool = False) -> dict[str, FeedbackInit]:
    """How a linear map starts: uniform on ±1/√inputs, or N(0, 0.01²) with such a bias.

    Args:
        name: Of the map.
        outputs: Width that it gives.
        inputs: Width that it takes.
        small: Whether its weight starts small.
    """
    sd = 1 / math.sqrt(3 * inputs)
    weight = FeedbackInit((outputs, inputs), SMALL) if small else FeedbackInit((outputs, inputs), sd, "uniform")
    return {f"{name}.weight": weight, f"{name}.bias": FeedbackInit((outputs,), SMALL if small else sd, "uniform")}


def linear(state: Mapping[str, Tensor], name: str, h: Tensor) -> Tensor:
    """A linear map of the state's.

    Args:
        state: The state.
        name: Of the map.
        h: First axes samples, last axis features.
    """
    return h @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def hidden(z: Tensor) -> Tensor:
    """The activation of every net's hidden layer."""
    return functional.gelu(z)
