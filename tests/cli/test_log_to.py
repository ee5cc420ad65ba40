"""``creditscope train --log-to`` as a user runs it: beside the logs, through a stop and a resume, and when it fails."""

import csv
import json

import pytest
from cases.offline import wandb_offline

from creditscope.engine import checkpoint
from creditscope.engine.fleet import Fleet

TINY = (
    *("--data", "synthetic", "--device", "cpu", "--rules", "dfa-rms,dfa-rms@frozen", "--seeds", "1"),
    *("--epochs", "4", "--set", "width=4", "--set", "depth=2", "--set", "batch=1024", "--set", "probe.n=16"),
    *("--set", "probe.epochs=[2]", "--set", "probe.redraws=9", "--set", "probe.directions=2"),
)


def logged(folder):
    """Accuracy and stream by run and epoch, from the logs read as plain JSON."""
    found = {}
    for path in folder.glob("*.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            if row["kind"] == "epoch":
                found[path.stem, row["epoch"]] = (row["test_accuracy"], row["hidden"]["median"][2])
    return found


def tabled(folder):
    """The same from the CSV files; a second line of an epoch would be seen."""
    found = {}
    for path in (folder / "csv").glob("*.csv"):
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                key = (path.stem, int(line["epoch"]))
                assert key not in found
                found[key] = (float(line["test_accuracy"]), float(line["hidden/state_2"]))
    return found


def test_the_tables_hold_what_the_logs_hold(tmp_path, creditscope):
    code, _, err = creditscope("train", *TINY, "--out", tmp_path, "--log-to", "csv")
    assert (code, err) == (0, "")
    assert len(logged(tmp_path)) == 10
    assert tabled(tmp_path) == logged(tmp_path)


def test_a_stop_and_a_resume_leave_each_point_once(tmp_path, creditscope, monkeypatch):
    """Stopped in epoch 4 with a checkpoint of epoch 1: epochs 2 and 3 are trained and written again."""
    save, begin_epoch = checkpoint.FleetState.save, Fleet.begin_epoch

    def save_early(self, folder):
        if self.epoch < 2:
            save(self, folder)

    def stop_late(self, epoch):
        if epoch == 4:
            raise KeyboardInterrupt
        begin_epoch(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr("creditscope.engine.loop.CHECKPOINT_SECONDS", -1.0)
        patch.setattr(checkpoint.FleetState, "save", save_early)
        patch.setattr(Fleet, "begin_epoch", stop_late)
        code, _, _ = creditscope("train", *TINY, "--out", tmp_path, "--log-to", "csv")
    assert code == 130
    assert {epoch for _, epoch in tabled(tmp_path)} == {0, 1, 2, 3}
    code, _, err = creditscope("train", *TINY, "--out", tmp_path, "--log-to", "csv", "--resume")
    assert (code, err) == (0, "")
    assert len(tabled(tmp_path)) == 10
    assert tabled(tmp_path) == logged(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "csv").iterdir()}
    assert creditscope("train", *TINY, "--out", tmp_path, "--log-to", "csv", "--resume")[0] == 0
    assert {path: path.read_bytes() for path in (tmp_path / "csv").iterdir()} == before


def test_a_sink_that_fails_is_one_line_and_every_run_ends(tmp_path, creditscope):
    (tmp_path / "csv").write_text("in the way")
    code, _, err = creditscope("train", *TINY, "--out", tmp_path, "--log-to", "csv")
    assert code == 0
    assert len(err.splitlines()) == 1
    assert err.startswith("sink csv: FileExistsError: ")
    assert err.endswith("; it gets no more rows, the run and its log go on\n")
    assert len(logged(tmp_path)) == 10


def test_the_monitor_hears_the_rows_too(tmp_path, creditscope):
    quick = ("--set", "lr=30", "--monitor", "stop", "--log-to", "csv")
    code, _, err = creditscope("train", *TINY, *quick, "--out", tmp_path)
    assert code == 0
    assert " fires on dfa-rms-s1-" in err
    assert tabled(tmp_path) == logged(tmp_path)


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
def test_an_unknown_sink_is_refused_before_anything_trains(tmp_path, creditscope, extra):
    code, _, err = creditscope("train", *TINY, "--out", tmp_path / "runs", "--log-to", "csv,tensorbord", *extra)
    assert (code, err) == (
        2,
        "creditscope: wanted a sink to log to, got 'tensorbord'; did you mean 'tensorboard'?\n",
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.peers
def test_all_sinks_at_once_and_the_folder_is_still_a_folder_of_logs(tmp_path, creditscope, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs").mkdir()
    with wandb_offline(monkeypatch, tmp_path / "runs"):
        code, _, err = creditscope("train", *TINY, "--out", "runs", "--log-to", "tensorboard,wandb,mlflow,csv,parquet")
    assert code == 0
    assert "sink" not in err
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert names >= {"tensorboard", "wandb", "mlflow.db", "csv", "parquet"}
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}
    code, _, err = creditscope("audit", "runs")
    assert (code, err) == (0, "")
