"""What a fleet is and what is seen of it: stacks of tensors, first axis runs unless said otherwise."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_map

from creditscope.engine.optim import Stack
from creditscope.probes.per_epoch import Summary


class Scores(NamedTuple):
    """Test results, one entry per run.

    Args:
        loss: Mean test loss, in nats.
        accuracy: Share of images, or of tokens, that are classified right.
        balanced: Mean over the classes that the test split holds of the accuracy on each.
        correct: Whether each image is, (runs, images); how many tokens of each sequence are, (runs, sequences).
    """

    loss: Tensor
    accuracy: Tensor
    balanced: Tensor
    correct: Tensor


class State(NamedTuple):
    """What training changes, first axis runs.

    Args:
        params: The parameters.
        first: First moments.
        second: Second moments; empty where the optimiser has none.
        buffers: The model's buffers.
        rules: State of the rule, first and second moments of its trained entries, group by group.
        steps: Steps that the parameters of each run took.
    """

    params: Stack
    first: Stack
    second: Stack
    buffers: Stack
    rules: tuple[tuple[Stack, Stack, Stack], ...]
    steps: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "State":
        """A function of every tensor."""
        mapped: State = tree_map(function, self)
        return mapped


class FleetObservation(NamedTuple):
    """What is measured of every run after every epoch, accuracy apart. On a GPU the next observation overwrites it.

    Args:
        summary: The numbers of the probe data, runs on the first axis.
        moved: How far each weight matrix of the blocks moved from its start, (matrices, runs).
        feedback: The same for the matrices of each group's state, where its rule learns.
    """

    summary: Summary
    moved: Tensor
    feedback: tuple[Tensor, ...]


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A function of every tensor in nested named tuples.

    Args:
        function: Of one tensor.
        value: The tuples.
    """
    if isinstance(value, Tensor):
        return function(value)
    return type(value)(*(map_tensors(function, part) for part in value)) if isinstance(value, tuple) else value
