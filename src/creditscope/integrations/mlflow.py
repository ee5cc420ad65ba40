"""MLflow: ``MLFLOW_TRACKING_URI`` where it is set, else the SQLite store ``out/mlflow.db``; steps are epochs."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, final

from creditscope.errors import BadInput
from creditscope.integrations.ledger import Entry, Ledger
from creditscope.integrations.scalars import Row, config, scalars
from creditscope.integrations.sink import missing
from creditscope.records import EndRow, HeaderRow

try:
    import mlflow
    from mlflow.entities import Metric, Param, RunTag
except ImportError as error:
    raise missing("mlflow", error) from None

EXPERIMENT = "creditscope"
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "diverged": "FAILED", "stopped": "KILLED"}


@final
class MlflowSink:
    """Runs of the experiment ``creditscope``: metrics, the run's settings as parameters, how it ended as tags.

    Args:
        out: Folder of the runs.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._ledger = Ledger(out, "mlflow")
        self._entries: dict[str, Entry] = {}
        self._client: Any = None
        self._experiment = ""
        if mlflow.is_tracking_uri_set():
            try:
                self._connect(None)  # now: MLflow waits minutes for a server that is down
            except Exception as error:
                raise BadInput(
                    f"mlflow: the tracking server that you set does not answer ({type(error).__name__}); start it, or "
                    f"unset MLFLOW_TRACKING_URI to log to {out.name}/mlflow.db"
                ) from None

    def on_row(self, header: HeaderRow, row: Row) -> None:
        """Log a row's numbers at its epoch."""
        run = header.spec.run_id
        if run not in self._entries:
            self._open(header, row)
        entry = self._entries[run]
        if not entry.has(row):
            now = time.time_ns() // 1_000_000
            metrics = [Metric(name, value, now, row.epoch) for name, value in scalars(row, header.units).items()]
            self._client.log_batch(entry.id, metrics=metrics)
            self._entries[run] = Entry(entry.id, row.epoch, row.kind)
            self._ledger.note(run, self._entries[run])
        if isinstance(row, EndRow):
            tags = {"end/status": row.status, "end/reason": row.reason or ""}
            self._client.log_batch(entry.id, tags=[RunTag(name, text) for name, text in tags.items()])
            self._client.set_terminated(self._entries.pop(run).id, _STATUS[row.status])

    def close(self) -> None:
        """End the runs that did not, as killed."""
        while self._entries:
            self._client.set_terminated(self._entries.popitem()[1].id, "KILLED")

    def _open(self, header: HeaderRow, row: Row) -> None:
        if self._client is None:
            self._connect(self._store())
        run = header.spec.run_id
        found = self._ledger.find(run, row)
        if found is not None:
            self._client.update_run(found.id, status="RUNNING")
            self._entries[run] = found
            return
        made = self._client.create_run(self._experiment, run_name=run)
        self._entries[run] = Entry(made.info.run_id)
        settings = [Param(name, str(value)) for name, value in config(header).items()]
        self._client.log_batch(made.info.run_id, params=settings)

    def _store(self) -> str:
        self._out.mkdir(parents=True, exist_ok=True)
        path = (self._out / "mlflow.db").resolve()
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA user_version")  # MLflow tries for minutes to open what cannot be opened
        return f"sqlite:///{path}"

    def _connect(self, store: str | None) -> None:
        client = mlflow.MlflowClient(tracking_uri=store)
        found = client.get_experiment_by_name(EXPERIMENT)
        self._experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
        self._client = client
