"""TensorBoard: ``tensorboard --logdir out/tensorboard``, one run each, steps are epochs."""

from pathlib import Path
from typing import Any, final

from creditscope.integrations.scalars import Row, config, scalars
from creditscope.integrations.sink import missing
from creditscope.records import EndRow, HeaderRow

try:
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import hparams
except ImportError as error:
    raise missing("tensorboard", error) from None


@final
class TensorBoardSink:
    """Scalars, the run's settings as hyper-parameters, and how it ended as text.

    Args:
        out: Folder of the runs.
    """

    def __init__(self, out: Path) -> None:
        self._folder = out / "tensorboard"
        self._writers: dict[str, Any] = {}

    def on_row(self, header: HeaderRow, row: Row) -> None:
        """Write a row's numbers at its epoch."""
        run = header.spec.run_id
        if run not in self._writers:
            self._writers[run] = self._open(header, row.epoch)
        writer = self._writers[run]
        for name, value in scalars(row, header.units).items():
            writer.add_scalar(name, value, row.epoch)
        if isinstance(row, EndRow):
            writer.add_text("end/status", f"{row.status}: {row.reason}" if row.reason else row.status, row.epoch)
            self._writers.pop(run).close()
        else:
            writer.flush()

    def close(self) -> None:
        """Close the files of runs that did not end."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _open(self, header: HeaderRow, epoch: int) -> Any:
        # A reader drops what an earlier writer of this folder wrote from this epoch on: that is measured again.
        writer = SummaryWriter(str(self._folder / header.spec.run_id), purge_step=epoch)
        for summary in hparams(config(header), {"test_accuracy": None}):
            writer.file_writer.add_summary(summary)
        return writer
