"""Probes of what the states hold: readout accuracy and participation ratio."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from creditscope.blocks import Batch, Snapshot, are_finite, view_state
from creditscope.errors import NotMeasured
from creditscope.probes.functional.participation import participation_ratio
from creditscope.probes.functional.ridge import ridge_accuracy
from creditscope.probes.probe import Measured, Need, Probe, by_state, float64_copy, lists, numbers, states_in_view


@dataclass(frozen=True)
class ReadoutProbe(Probe):
    """Does a block add or destroy information?

    Measures: test accuracy of a ridge readout fitted on each state, float64, standardised features.
    Healthy: grows from h_0 to h_L.
    Fooled by: wide states and few fitting samples (the readout overfits); it sees only what is linearly readable.
    Null: none; h_0 is what the others are compared with.
    """

    name: ClassVar[str] = "probe accuracy"
    unit: ClassVar[str] = "fraction"
    needs: ClassVar[tuple[Need, ...]] = ("states", "fit")
    fields: ClassVar[tuple[str, ...]] = ("probe_accuracy",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """A forward pass over both sets, then closed-form fits."""
        if snapshot.fit is None or snapshot.test is None:
            raise NotMeasured("probe accuracy: no samples to fit and test readouts on were given")
        if snapshot.fit.y.is_floating_point() or snapshot.fit.y.ndim != 1:
            raise NotMeasured("probe accuracy: a readout is fitted on class labels, and the targets are none")
        fit, test = (_states(snapshot, batch) for batch in (snapshot.fit, snapshot.test))
        labels = snapshot.fit.y, snapshot.test.y

        def accuracy(fit: Tensor, test: Tensor) -> Tensor:
            return ridge_accuracy(fit, labels[0], test, labels[1], snapshot.task.outputs)

        broken = ~are_finite([*fit, *test])
        values, *marks = lists(by_state(accuracy, fit, test), *broken.double().chunk(2))
        for level, (in_fit, in_test) in enumerate(zip(*marks, strict=True)):
            if in_fit or in_test:
                raise NotMeasured(f"probe accuracy: state {level} is not finite in the run's dtype")
        return Measured({"probe_accuracy": values})


@dataclass(frozen=True)
class ParticipationProbe(Probe):
    """Over how many directions is a state spread?

    Measures: (Σλ)²/Σλ² of each state's covariance over the probe samples.
    Healthy: tens of directions at h_L; a collapsed stream has little more than one.
    Fooled by: few samples (it cannot pass n − 1) and one feature of huge variance.
    Null: none; it describes.
    """

    name: ClassVar[str] = "participation ratio"
    unit: ClassVar[str] = "directions"
    needs: ClassVar[tuple[Need, ...]] = ("states",)
    fields: ClassVar[tuple[str, ...]] = ("participation",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """One Gram matrix per state."""
        values = by_state(vmap(participation_ratio), states_in_view(float64_copy(snapshot)))
        return Measured({"participation": numbers(values)})


def _states(snapshot: Snapshot, batch: Batch) -> list[Tensor]:
    """States of other samples than the probe's, in the run's dtype and view."""
    # Copies: a normaliser left in training mode would write its statistics into the run's own.
    full = {**{name: b.clone() for name, b in snapshot.task.buffers.items()}, **snapshot.params}
    parts = [
        [view_state(h, snapshot.view) for h in snapshot.task.blocks.forward(full, x).states]
        for x in torch.split(batch.x, 8 * snapshot.batch)
    ]
    return [torch.cat(column) for column in zip(*parts, strict=True)]
