"""Weights & Biases: one run each, steps are epochs; online or offline as ``WANDB_MODE`` says."""

from pathlib import Path
from typing import Any, final

from creditscope.errors import BadInput
from creditscope.integrations.ledger import Entry, Ledger
from creditscope.integrations.scalars import Row, config, scalars
from creditscope.integrations.sink import missing
from creditscope.records import EndRow, HeaderRow

try:
    import wandb
except ImportError as error:
    raise missing("wandb", error) from None


@final
class WandbSink:
    """Runs of the project ``creditscope`` (or ``WANDB_PROJECT``); files where W&B keeps them (``WANDB_DIR``).

    Args:
        out: Folder of the runs; it remembers which of them are which.
    """

    def __init__(self, out: Path) -> None:
        self._ledger = Ledger(out, "wandb")
        self._runs: dict[str, Any] = {}
        self._entries: dict[str, Entry] = {}
        settings = wandb.setup().settings
        self._project = settings.project or "creditscope"
        if settings.mode == "online":
            try:
                wandb.login(verify=False)  # now, so that no question stops the training later
            except wandb.Error as error:
                cause = str(error).splitlines()[0]
                raise BadInput(f"wandb: {cause} Run `wandb login`, or set WANDB_MODE=offline") from None

    def on_row(self, header: HeaderRow, row: Row) -> None:
        """Log a row's numbers at its epoch; rows of one epoch become one step."""
        run = header.spec.run_id
        if run not in self._runs:
            self._open(header, row)
        entry = self._entries[run]
        if not entry.has(row):
            self._runs[run].log(scalars(row, header.units), step=row.epoch)
            self._entries[run] = Entry(entry.id, row.epoch, row.kind)
            self._ledger.note(run, self._entries[run])
        if isinstance(row, EndRow):
            self._runs[run].summary.update({"end/status": row.status, "end/reason": row.reason})
            self._runs.pop(run).finish(exit_code=0 if row.status == "finished" else 1)

    def close(self) -> None:
        """End the runs that did not, as failed."""
        while self._runs:
            self._runs.popitem()[1].finish(exit_code=1)

    def _open(self, header: HeaderRow, row: Row) -> None:
        run = header.spec.run_id
        found = self._ledger.find(run, row)
        self._runs[run] = wandb.init(
            project=self._project,
            id=found.id if found else None,
            name=run,
            config=config(header),
            resume="allow" if found else None,
            reinit="create_new",  # the runs of a fleet are open side by side
            # The terminal is the user's, and the log has the machine's facts without names and paths.
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True),
        )
        self._entries[run] = found or Entry(self._runs[run].id)
