"""When the expensive set is measured."""

from collections.abc import Collection

from creditscope.records import RunSpec

EXPENSIVE_EPOCHS = (0, 1, 2, 3, 5, 10, 20, 30, 50)


def is_expensive(epoch: int, last: int, listed: Collection[int] | None) -> bool:
    """Whether the expensive set is measured after this epoch: at the listed epochs and always at the last.

    Args:
        epoch: Epochs done.
        last: Epochs planned.
        listed: Listed epochs; None for the protocol's.
    """
    return epoch == last or epoch in (EXPENSIVE_EPOCHS if listed is None else listed)


def expensive_epochs(spec: RunSpec) -> tuple[int, ...] | None:
    """The listed epochs of a run, for ``is_expensive``; a baseline, never judged, has its last alone.

    Args:
        spec: The run.
    """
    return () if spec.is_baseline or spec.probe is None else spec.probe.epochs
