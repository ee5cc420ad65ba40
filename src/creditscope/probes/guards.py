"""Whether a snapshot can be measured at all: independent samples, and a tail that is the rest of the network."""

from collections.abc import Collection, Sequence
from functools import cached_property

import torch
from torch import Tensor

from creditscope.blocks import Batch, Snapshot, observe
from creditscope.errors import NotMeasured
from creditscope.probes.probe import Need, by_state, float64_copy

# Both checks compare float64 results of the same arithmetic: only rounding may differ.
_TOLERANCE = 1e-8


def samples_are_independent(snapshot: Snapshot, references: Sequence[Tensor] | None = None) -> bool:
    """Whether one sample's reference is untouched when another sample changes.

    One sample of the first probe batch is replaced by another input with another target; batch norm without
    running statistics and batch-level losses show up in the others' references.

    Args:
        snapshot: The run.
        references: g_0..g_L in float64, of the first probe batch or more, where they are known; None: found here.
    """
    double = snapshot.in_dtype(torch.float64)
    batch = double.batches[0]
    if len(batch.x) < 2:
        return True
    changed = Batch(batch.x.clone(), batch.y.clone())
    changed.x[0] = -batch.x[1] if batch.x.is_floating_point() else batch.x[1]
    changed.y[0] = batch.y[1]
    if torch.equal(changed.x[0], batch.x[0]):
        raise NotMeasured("independence of samples: the first two probe samples are equal; shuffle the probe data")
    with torch.no_grad():
        before = references or observe(double.task, double.params, None, {}, batch).references
        after = observe(double.task, double.params, None, {}, changed).references
        return bool(by_state(_others_agree, [g[: len(batch.x)] for g in before], after).all())


def _others_agree(before: Tensor, after: Tensor) -> Tensor:
    """Per state, whether all samples but the first have the same reference, NaN for NaN."""
    before, after = before.flatten(2), after.flatten(2)
    largest = before.abs().nan_to_num().amax(dim=(1, 2), keepdim=True)
    same = _near(before, after, largest) | (before.isnan() & after.isnan())
    return same[:, 1:].flatten(1).all(dim=1)


def tail_is_the_rest(snapshot: Snapshot) -> bool:
    """Whether ``tail_loss`` from every state reproduces the loss; a residual stream that is bypassed does not.

    Args:
        snapshot: The run.
    """
    double = float64_copy(snapshot)
    loss = double.observation.loss
    return bool(_near(torch.stack(double.tail_losses), loss, loss.abs().max()).all())


def _near(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """Where two results are one up to rounding, at the given size of what was added up."""
    far = (a - b).abs()
    return (a == b) | (far.isfinite() & (far <= _TOLERANCE * (scale + b.abs())))


class Guards:
    """The answers for one snapshot, each found once and only if asked for.

    Args:
        snapshot: The run.
        independent: Whether its samples are, where that was found before.
    """

    def __init__(self, snapshot: Snapshot, independent: bool | None = None) -> None:
        self._snapshot = snapshot
        self._known = independent

    def check(self, needs: Collection[Need]) -> None:
        """Raise NotMeasured where the snapshot lacks what a probe needs.

        Args:
            needs: What the probe declares.
        """
        if "references" in needs and not self._independent:
            raise NotMeasured(
                "samples are not independent: changing one changes another's gradient (batch norm without running "
                "statistics, or a batch-level loss); use eval mode or a per-sample loss"
            )
        if "tail" in needs and not self._tail:
            raise NotMeasured(
                "the rest of the network does not reproduce the loss from its states: something by-passes the "
                "blocks; choose blocks that the whole residual stream passes"
            )

    @cached_property
    def _independent(self) -> bool:
        if self._known is not None:
            return self._known
        return samples_are_independent(self._snapshot, self._snapshot.in_dtype(torch.float64).observation.references)

    @cached_property
    def _tail(self) -> bool:
        return tail_is_the_rest(self._snapshot)
