"""Probes of what the states hold and what the blocks do: readouts, participation ratio, removal of a block."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from creditscope.blocks import Batch, Snapshot, are_finite, view_state
from creditscope.errors import NotMeasured
from creditscope.probes.functional.participation import participation_ratio
from creditscope.probes.functional.ridge import ridge_right
from creditscope.probes.probe import Measured, Need, Probe, by_state, float64_copy, lists, numbers, states_in_view
from creditscope.records.images import pack_bits
from creditscope.records.measured import Idle, Ladder


@dataclass(frozen=True)
class ReadoutProbe(Probe):
    """Does a block add or destroy information?

    Measures: test accuracy of a ridge readout fitted on each state, float64, standardised features; for h_L and for
        the state a third of the blocks below it also which images are right. Of text, the last token of each sequence.
    Healthy: grows from h_0 to h_L.
    Fooled by: wide states and few fitting samples (the readout overfits); it sees only what is linearly readable.
    Null: none; h_0 is what the others are compared with.
    """

    name: ClassVar[str] = "probe accuracy"
    unit: ClassVar[str] = "fraction"
    needs: ClassVar[tuple[Need, ...]] = ("states", "fit")
    fields: ClassVar[tuple[str, ...]] = ("probe_accuracy", "ladder")

    def measure(self, snapshot: Snapshot) -> Measured:
        """A forward pass over both sets, then closed-form fits."""
        if snapshot.fit is None or snapshot.test is None:
            raise NotMeasured("probe accuracy: no samples to fit and test readouts on were given")
        if not _classes(snapshot.fit.y):
            raise NotMeasured("probe accuracy: a readout is fitted on class labels, and the targets are none")
        fit, test = (_states(snapshot, batch) for batch in (snapshot.fit, snapshot.test))
        labels = _last_token(snapshot.fit.y), _last_token(snapshot.test.y)
        lower = snapshot.depth - math.ceil(snapshot.depth / 3)

        def right(fit: Tensor, test: Tensor) -> Tensor:
            return ridge_right(fit, labels[0], test, labels[1], snapshot.task.outputs)

        found, broken = by_state(right, fit, test), ~are_finite([*fit, *test])
        values, in_fit, in_test, *rungs = lists(
            found.mean(dim=-1), *broken.double().chunk(2), found[lower], found[snapshot.depth]
        )
        for level, (fit_broken, test_broken) in enumerate(zip(in_fit, in_test, strict=True)):
            if fit_broken or test_broken:
                raise NotMeasured(f"probe accuracy: state {level} is not finite in the run's dtype")
        if None in (values[lower], values[snapshot.depth]):
            return Measured({"probe_accuracy": values}, {"ladder": "a state that does not vary has no readout"})
        packed = [pack_bits(np.array(rung)) for rung in rungs]
        ladder = Ladder(state=lower, lower=packed[0], top=packed[1], n=len(labels[1]))
        return Measured({"probe_accuracy": values, "ladder": ladder})


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


@dataclass(frozen=True)
class IdleProbe(Probe):
    """Would anybody notice if a block were taken out?

    Measures: test accuracy with one block's branch set to zero, less accuracy with all of them, image by image (of
        text, sequence by sequence).
    Healthy: clearly negative for every block.
    Fooled by: two blocks that do the same; without skips a branch is the whole state, and nothing passes it.
    Null: none; the error over the images says what no change looks like.
    """

    name: ClassVar[str] = "idle"
    unit: ClassVar[str] = "fraction"
    needs: ClassVar[tuple[Need, ...]] = ("test",)
    fields: ClassVar[tuple[str, ...]] = ("idle",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """One forward pass with each block taken out, and one with none."""
        test = snapshot.test
        if test is None:
            raise NotMeasured("idle: no test samples were given")
        if not _classes(test.y):
            raise NotMeasured("idle: accuracy is counted on class labels, and the targets are none")
        whole = _right(snapshot, test)
        if whole.isnan().any():
            raise NotMeasured("idle: the net's output is not finite in the run's dtype")
        losses = []
        for block in range(snapshot.depth):
            with snapshot.task.blocks.removed(block):
                losses.append(_right(snapshot, test) - whole)
        change = torch.stack(losses)
        n = change.shape[1]
        mean, se = lists(change.mean(dim=1), change.std(dim=1) / math.sqrt(n))
        return Measured({"idle": Idle(change=mean, se=se, n=n)})


def _classes(y: Tensor) -> bool:
    return y.ndim in (1, 2) and not y.is_floating_point()


def _last_token(y: Tensor) -> Tensor:
    """Of text, the target of the last token, which has seen most; other labels as they are."""
    return y[:, -1] if y.ndim == 2 else y


def _full(snapshot: Snapshot) -> dict[str, Tensor]:
    # Copies: a normaliser left in training mode would write its statistics into the run's own.
    return {**{name: b.clone() for name, b in snapshot.task.buffers.items()}, **snapshot.params}


def _right(snapshot: Snapshot, batch: Batch) -> Tensor:
    """Per sample, the share of right answers of the net as it is; NaN where an answer is no number."""
    full = _full(snapshot)
    logits = torch.cat([snapshot.task.blocks.run(full, x) for x in torch.split(batch.x, 8 * snapshot.batch)])
    right = torch.where(logits.isfinite().all(dim=-1), (logits.argmax(dim=-1) == batch.y).double(), math.nan)
    return right.reshape(len(right), -1).mean(dim=1)


def _states(snapshot: Snapshot, batch: Batch) -> list[Tensor]:
    """States of other samples than the probe's, in the run's dtype and view; of text those of the last token."""
    full = _full(snapshot)
    parts = [
        [
            h[:, -1] if batch.y.ndim == 2 else view_state(h, snapshot.view)
            for h in snapshot.task.blocks.forward(full, x).states
        ]
        for x in torch.split(batch.x, 8 * snapshot.batch)
    ]
    return [torch.cat(column) for column in zip(*parts, strict=True)]
