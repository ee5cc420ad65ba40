"""What a watched run writes about itself: its file, and what was left out to keep the budget."""

from collections.abc import Sequence
from pathlib import Path

from creditscope.errors import CannotWrite
from creditscope.probes.expensive import expensive_probes
from creditscope.records import LogWriter, ProbeRow


def said_skipped(skipped: Sequence[int], budget: float, shrunk: str | None) -> str | None:
    """Epochs that were not measured, and what the last look was made on; None where nothing was left out.

    Args:
        skipped: The epochs.
        budget: Share of the time.
        shrunk: What is to be said of the last look.
    """
    if not skipped:
        return shrunk
    epochs = ", ".join(map(str, skipped[:20])) + (", …" if len(skipped) > 20 else "")
    said = f"not measured after epochs {epochs}: the budget of {budget:.3g} of the time was spent"
    return f"{said}; {shrunk}" if shrunk else said


def passed_over(epoch: int, step: int, budget: float) -> ProbeRow:
    """The row of an epoch that was not measured.

    Args:
        epoch: Which.
        step: Optimiser steps done.
        budget: Share of the time.
    """
    why = f"skipped: measuring would take more than {budget:.3g} of the time; raise budget or every"
    fields = ("epoch row", *(name for probe in expensive_probes() for name in probe.fields))
    return ProbeRow(epoch=epoch, step=step, not_measured=dict.fromkeys(fields, why))


def writer_in(out: str | Path, file: str) -> LogWriter:
    """Writes the log into a folder, or the file itself.

    Args:
        out: A folder, or a file that ends in ``.jsonl``.
        file: Name of the log in a folder.
    """
    path = Path(out)
    path = path if path.suffix == ".jsonl" else path / file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"out={path.parent.name}: cannot be made ({error.strerror}); choose a folder you can write"
        ) from None
    return LogWriter(path)
