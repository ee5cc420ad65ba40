"""The W&B sink offline: the file that W&B would upload, parsed record by record."""

import json

import pytest
from cases.offline import wandb_offline
from cases.specs import epoch, header

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.integrations import config, scalars
from creditscope.records import EndRow

pytestmark = pytest.mark.peers
ITS_OWN = {"_step", "_timestamp", "_runtime"}


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Offline, with its files in the test's folder; call it for what it wrote, run by run."""

    def written():
        import wandb

        wandb.teardown()  # its own process writes the file, and has written it when it ends
        return [parse(path) for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]

    with wandb_offline(monkeypatch, tmp_path):
        yield written


def parse(path):
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(path))
    found = {"history": [], "summary": {}, "exit": None}
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found |= {"id": run.run_id, "name": run.display_name, "project": run.project}
            found["config"] = {item.key: json.loads(item.value_json) for item in run.config.update}
        elif kind == "history":
            found["history"].append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "summary":
            found["summary"] |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
    return found


def _key(item):
    return item.key or "/".join(item.nested_key)


def steps(run):
    """The numbers that one run wrote, by epoch."""
    return [(line["_step"], {k: v for k, v in line.items() if k not in ITS_OWN}) for line in run["history"]]


def wanted(log, first=0, last=99):
    lines = []
    for row in log.epochs:
        numbers = {}
        for other in list(log.rows())[1:]:
            numbers |= scalars(other) if other.epoch == row.epoch else {}
        lines += [(row.epoch, numbers)] if first <= row.epoch <= last else []
    return lines


def test_one_run_each_with_its_settings_its_numbers_and_its_end(tmp_path, offline, logs, feed):
    with cs.log_to("wandb", tmp_path / "runs") as sink:
        feed(sink, logs)
    runs = {run["name"]: run for run in offline()}
    assert set(runs) == {log.spec.run_id for log in logs}
    for log in logs:
        run = runs[log.spec.run_id]
        assert steps(run) == wanted(log)
        assert {name: value for name, value in run["config"].items() if name != "_wandb"} == config(log.header)
        assert (run["project"], run["exit"]) == ("creditscope", 0)
        assert run["summary"]["end/status"] == "finished"


def test_a_resumed_run_is_the_same_run_and_has_each_point_once(tmp_path, offline, log, feed):
    out = tmp_path / "runs"
    with cs.log_to("wandb", out) as sink:
        feed(sink, [log], last=2)
    with cs.log_to("wandb", out) as sink:
        feed(sink, [log], first=1)
    first, second = sorted(offline(), key=lambda run: run["history"][0]["_step"])
    assert first["id"] == second["id"]
    assert steps(first) + steps(second) == wanted(log)
    assert (first["exit"], second["exit"]) == (1, 0)


def test_a_run_that_begins_again_is_another_run(tmp_path, offline, log, feed):
    for _ in range(2):
        with cs.log_to("wandb", tmp_path / "runs") as sink:
            feed(sink, [log], last=1)
    assert len({run["id"] for run in offline()}) == 2


def test_a_run_that_failed_says_so_and_the_project_can_be_chosen(tmp_path, offline, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_PROJECT", "mine")
    wandb.teardown()
    with cs.log_to("wandb", tmp_path / "runs") as sink:
        sink(header(), epoch(0))
        sink(header(), EndRow(status="diverged", epoch=0, reason="the test loss became non-finite"))
    (run,) = offline()
    assert (run["exit"], run["project"]) == (1, "mine")
    assert run["summary"]["end/reason"] == "the test loss became non-finite"


def test_without_a_login_it_is_refused_before_anything_trains(tmp_path, monkeypatch):
    import wandb

    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "WANDB_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    wandb.teardown()
    with pytest.raises(BadInput) as refused:
        cs.log_to("wandb", tmp_path)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("wandb: No API key configured.")
    assert str(refused.value).endswith("Run `wandb login`, or set WANDB_MODE=offline")
    wandb.teardown()
