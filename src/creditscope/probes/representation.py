"""Probes of what the states hold: readout accuracy and participation ratio."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from creditscope.blocks import Batch, Snapshot, view_state
from creditscope.errors import NotMeasured
from creditscope.probes.functional.participation import participation_ratio
from creditscope.probes.functional.ridge import ridge_accuracy
from creditscope.probes.probe import Measured, Need, Probe, exact_twin, numbers, states_in_view


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
        for level, h in enumerate([*fit, *test]):
            if not bool(h.isfinite().all()):
                raise NotMeasured(f"probe accuracy: state {level % len(fit)} is not finite in the run's dtype")
        classes = snapshot.task.outputs
        labels = snapshot.fit.y, snapshot.test.y
        values = [ridge_accuracy(a, labels[0], b, labels[1], classes) for a, b in zip(fit, test, strict=True)]
        return Measured({"probe_accuracy": numbers(values)})


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
        return Measured(
            {"participation": numbers([participation_ratio(h) for h in states_in_view(exact_twin(snapshot))])}
        )


def _states(snapshot: Snapshot, batch: Batch) -> list[Tensor]:
    """States of other samples than the probe's, in the run's dtype and view."""
    # Copies: a normaliser left in training mode would write its statistics into the run's own.
    full = {**{name: b.clone() for name, b in snapshot.task.buffers.items()}, **snapshot.params}
    parts = [
        [view_state(h, snapshot.view) for h in snapshot.task.blocks.forward(full, x).states]
        for x in torch.split(batch.x, 8 * snapshot.batch)
    ]
    return [torch.cat(column) for column in zip(*parts, strict=True)]
