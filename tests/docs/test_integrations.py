"""The page on other tools: every piece of its code runs, and its names are those that are written."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from cases.offline import wandb_offline
from cases.vision_ops import declare
from typer.testing import CliRunner

import creditscope as cs
from creditscope.cli import app
from creditscope.integrations import SINKS, scalars

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
READ, REPLAY, LOOP, LIGHTNING, HUGGING_FACE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def run(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "integrations", "exec"), {"__name__": "integrations"})
    return out.getvalue()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.peers
def test_the_commands_and_what_they_leave(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    commands = re.findall(r"^\$ creditscope (.*)$", PAGE, flags=re.MULTILINE)
    asked = {name for line in commands for name in shlex.split(line)[-1].split(",")}
    assert asked == set(SINKS)
    with wandb_offline(monkeypatch, tmp_path):
        for line in commands:
            done = CliRunner().invoke(app, shlex.split(line))
            assert done.exit_code == 0, done.output
    said = run(READ)
    for log in cs.load_logs("runs").logs[:2]:
        assert f"'{log.spec.run_id}', 'epoch': 2, 'test_accuracy': {log.last.test_accuracy}," in said
        assert f"\n{log.spec.run_id} {log.last.test_accuracy}\n" in said
    assert len(list((tmp_path / "runs" / "tensorboard").iterdir())) == 2
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1


def test_a_loop_with_a_sink_then_the_log_given_to_one(tmp_path):
    said = run(LOOP)
    assert "verdict" in said
    (table,) = (tmp_path / "runs" / "csv").iterdir()
    before = table.read_bytes()
    assert len(before.splitlines()) >= 3
    table.unlink()
    run(REPLAY)
    assert table.read_bytes() == before


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", [LIGHTNING, HUGGING_FACE], ids=["lightning", "hugging face"])
def test_a_callback(tmp_path, code):
    declare()
    assert "verdict" in run(code)
    (log,) = cs.load_logs(tmp_path / "runs").logs
    assert log.end.status in ("finished", "stopped")
    assert log.epochs[-1].train_loss is not None
    assert log.epochs[-1].epoch in (1, 2)


def test_every_sink_is_in_the_table():
    assert set(re.findall(r"^\| `(\w+)` \| [–`]", PAGE, flags=re.MULTILINE)) == set(SINKS)


def test_the_names_on_the_page_are_those_that_are_written():
    specs = cs.specs(
        ["dfa-rms"], data="synthetic", seeds=[1], changes={"epochs": 1, "width": 4, "depth": 2, "probe.n": 16}
    )
    (log,) = cs.train(specs, "runs", device="cpu")
    written = {name for row in list(log.rows())[1:] for name in scalars(row)}
    cells = re.findall(r"^\| (.*?) \|", PAGE.split("## The names of the numbers")[1].split("\n## ")[0], re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`([\w/]+)`", cell)}
    assert {re.sub(r"_\d+$", "_0", name) if "/" in name else name for name in written} == listed
