"""The part of a log that a judge reads: less than half of the memory, the same audit."""

from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, Norms

# No check reads these before the last epoch; the cosines are read beside probes, for their status.
_LAST_EPOCH_ONLY: dict[str, None] = dict.fromkeys(
    ("step", "lr", "train_loss", "test_loss", "balanced_accuracy", "branch", "cosine_published", "gamma")
)
_SPREAD: dict[str, None] = dict.fromkeys(("q05", "q95", "low", "high"))


def slim(log: RunLog) -> RunLog:
    """Empty, in place, what no check reads of a log; its last epoch and its probes stay whole.

    Args:
        log: A log that was just read and that nobody else holds: its rows are immutable to all but this function.
    """
    probed = {probe.epoch for probe in log.probes}
    names: list[list[str]] = []
    for row in log.epochs[:-1]:
        row.__dict__.update(_LAST_EPOCH_ONLY)
        if row.epoch not in probed:
            row.__dict__["cosine"] = None
        for norms in (row.hidden, row.reference):
            _drop_spread(norms)
        names = _share_names(row, names)
    return log


def _drop_spread(norms: Norms | None) -> None:
    if norms is not None:
        norms.__dict__.update(_SPREAD)


def _share_names(row: EpochRow, names: list[list[str]]) -> list[list[str]]:
    """The names of the weight matrices are the same at every epoch: hold them once."""
    if row.movement is None:
        return names
    if names == row.movement.blocks:
        row.movement.__dict__["blocks"] = names
    return row.movement.blocks
