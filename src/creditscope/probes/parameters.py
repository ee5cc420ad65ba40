"""Probes of parameter gradients and steps, one value a block: gradient cosine and step descent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from creditscope.blocks import Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.functional.cosine import cosines
from creditscope.probes.functional.gradient import one_vector
from creditscope.probes.probe import Measured, Need, Probe, by_state, float64_copy, numbers


@dataclass(frozen=True)
class GradientCosineProbe(Probe):
    """Does the rule's parameter gradient point where BP's does?

    Measures: per block, cosine of the raw gradient that the rule wrote with BP's, same weights and batch.
    Healthy: clearly above its null in every trained block.
    Fooled by: gradients that are exact by construction; a block is one vector, so its largest matrix counts most.
    Null: fresh feedback, given as ``gradient_null``.
    """

    name: ClassVar[str] = "gradient cosine"
    unit: ClassVar[str] = "cosine"
    needs: ClassVar[tuple[Need, ...]] = ("train",)
    fields: ClassVar[tuple[str, ...]] = ("gradient_cosine",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """One pass of the rule and one of BP on the training batch, in float64."""
        double = float64_copy(snapshot)
        return Measured({"gradient_cosine": _cosines(snapshot, double.rule_grads, double.bp_grads)})


@dataclass(frozen=True)
class StepDescentProbe(Probe):
    """Did the last step go down?

    Measures: per block ⟨∇_BP, Δθ⟩/(‖∇_BP‖‖Δθ‖), Δθ the actual step net of decay.
    Healthy: negative.
    Fooled by: momentum (the step follows many batches, the gradient one); a block that did not move has no value.
    Null: none; an uninformed step lies near 0.
    """

    name: ClassVar[str] = "step descent"
    unit: ClassVar[str] = "cosine"
    needs: ClassVar[tuple[Need, ...]] = ("train", "update")
    fields: ClassVar[tuple[str, ...]] = ("step_descent",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """One pass of BP on the training batch, in float64."""
        if snapshot.update is None:
            raise NotMeasured("step descent: no optimiser step was kept (none was done, or it was not watched)")
        return Measured({"step_descent": _cosines(snapshot, float64_copy(snapshot).bp_grads, snapshot.update)})


def block_parameters(snapshot: Snapshot) -> list[list[str]]:
    """Names of the parameters of each block.

    Args:
        snapshot: The run.
    """
    owner = {name: snapshot.task.blocks.block_of(name) for name in snapshot.params}
    return [[name for name, block in owner.items() if block == at] for at in range(snapshot.depth)]


def _cosines(snapshot: Snapshot, first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> list[float | None]:
    """Per block, over the parameters that both sides hold; None where none is left or one side is zero."""
    held = [[name for name in names if name in first and name in second] for names in block_parameters(snapshot)]
    some = [names for names in held if names]
    if not some:
        return [None] * len(held)
    sides = ([one_vector([side[name] for name in names]) for names in some] for side in (first, second))
    values = iter(numbers(by_state(lambda a, b: cosines(a, b)[0], *sides)))
    return [next(values) if names else None for names in held]
