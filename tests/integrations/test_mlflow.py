"""The MLflow sink on a local SQLite store, read back by sqlite3 and by MLflow's client."""

import sqlite3

import pytest
from cases.specs import epoch, header

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.integrations import config, scalars
from creditscope.records import EndRow

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An empty store, made once: its tables take seconds."""
    import mlflow

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path.read_bytes()


@pytest.fixture
def out(tmp_path, store, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(store)
    return tmp_path


def rows_of(out, query):
    connection = sqlite3.connect(out / "mlflow.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def points(out, name):
    query = "SELECT key, step, value FROM metrics JOIN runs USING (run_uuid) WHERE name = '{}'"
    return sorted(rows_of(out, query.format(name)))


def wanted(log, last=99):
    rows = [row for row in list(log.rows())[1:] if row.epoch <= last]
    return sorted((name, row.epoch, value) for row in rows for name, value in scalars(row).items())


def test_metrics_parameters_and_status_are_in_the_store(out, logs, feed):
    with cs.log_to("mlflow", out) as sink:
        feed(sink, logs)
    for log in logs:
        assert points(out, log.spec.run_id) == wanted(log)
    assert rows_of(out, "SELECT DISTINCT status, e.name FROM runs JOIN experiments e USING (experiment_id)") == [
        ("FINISHED", "creditscope")
    ]
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    found = client.search_runs([client.get_experiment_by_name("creditscope").experiment_id])
    for log in logs:
        (run,) = [run for run in found if run.info.run_name == log.spec.run_id]
        assert run.data.params == {name: str(value) for name, value in config(log.header).items()}
        assert run.data.tags["end/status"] == "finished"
        assert run.data.metrics["test_accuracy"] == log.last.test_accuracy


def test_a_resumed_run_is_the_same_run_and_has_each_point_once(out, log, feed):
    with cs.log_to("mlflow", out) as sink:
        feed(sink, [log], last=2)
    assert rows_of(out, "SELECT status FROM runs") == [("KILLED",)]
    with cs.log_to("mlflow", out) as sink:
        feed(sink, [log], first=1, end=False)
        assert rows_of(out, "SELECT status FROM runs") == [("RUNNING",)]
        sink(log.header, log.end)
    assert points(out, log.spec.run_id) == wanted(log)
    assert rows_of(out, "SELECT status FROM runs") == [("FINISHED",)]


def test_a_run_that_begins_again_is_another_run(out, log, feed):
    for _ in range(2):
        with cs.log_to("mlflow", out) as sink:
            feed(sink, [log], last=1)
    assert len(rows_of(out, "SELECT run_uuid FROM runs")) == 2


@pytest.mark.parametrize(("status", "theirs"), [("failed", "FAILED"), ("diverged", "FAILED"), ("stopped", "KILLED")])
def test_how_a_run_ended(out, status, theirs):
    with cs.log_to("mlflow", out) as sink:
        sink(header(), epoch(0))
        sink(header(), EndRow(status=status, epoch=0, reason="why"))
    assert rows_of(out, "SELECT status FROM runs") == [(theirs,)]
    assert set(rows_of(out, "SELECT key, value FROM tags")) >= {("end/status", status), ("end/reason", "why")}


def test_the_users_own_store_is_used(tmp_path, store, log, feed, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mlflow.db").write_bytes(store)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mine' / 'mlflow.db'}")
    with cs.log_to("mlflow", tmp_path / "runs") as sink:
        feed(sink, [log])
    assert points(tmp_path / "mine", log.spec.run_id) == wanted(log)
    assert not (tmp_path / "runs" / "mlflow.db").exists()


def test_a_store_that_cannot_be_opened_is_one_line(tmp_path, log, feed, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").mkdir()
    said = []
    with cs.log_to("mlflow", tmp_path, said.append) as sink:
        feed(sink, [log])
    assert said == [
        "sink mlflow: OperationalError: unable to open database file; it gets no more rows, the run and its log go on"
    ]


def test_a_server_that_is_away_is_said_before_anything_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(BadInput) as refused:
        cs.log_to("mlflow", tmp_path / "runs")
    assert str(refused.value) == (
        "mlflow: the tracking server that you set does not answer (MlflowException); start it, or unset "
        "MLFLOW_TRACKING_URI to log to runs/mlflow.db"
    )
