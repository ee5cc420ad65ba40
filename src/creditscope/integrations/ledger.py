"""Which run of a tracker belongs to which run of a folder, and how far it got: what a resume needs."""

import json
from pathlib import Path
from typing import NamedTuple

from creditscope.integrations.scalars import Row

_ORDER = ("epoch", "probe", "end")


class Entry(NamedTuple):
    """One run's entry.

    Args:
        id: The tracker's name for the run.
        epoch: Epoch of the last row written.
        kind: Its kind.
    """

    id: str
    epoch: int = -1
    kind: str = "end"

    def has(self, row: Row) -> bool:
        """Whether the tracker has this row already."""
        return (row.epoch, _ORDER.index(row.kind)) <= (self.epoch, _ORDER.index(self.kind))


class Ledger:
    """One small hidden file a run and tracker, next to the logs.

    Args:
        out: Folder of the runs.
        tracker: Whose runs.
    """

    def __init__(self, out: Path, tracker: str) -> None:
        self._folder = out / ".log-to" / tracker

    def find(self, run: str, row: Row) -> Entry | None:
        """The entry of a run that is resumed; None for one that begins, at epoch 0, or is not known.

        Args:
            run: The run's id.
            row: The first row that came of it.
        """
        try:
            entry = Entry(**json.loads((self._folder / run).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return entry if row.epoch > 0 else None

    def note(self, run: str, entry: Entry) -> None:
        """Remember how far a run got; after the row is written, so that a kill in between loses nothing.

        Args:
            run: The run's id.
            entry: Its entry.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / run).write_text(json.dumps(entry._asdict()), encoding="utf-8")
