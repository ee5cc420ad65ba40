"""Rules from outside are shown by their own words: in logs, figure, form, report, ``show`` and ``--help``."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from extension.outside import RULES, FeedbackMoves, KolenPollack, Pepita, UniformDirect

import creditscope as cs
from creditscope.cli.show import _text
from creditscope.figures.hero import hero_table
from creditscope.report.form import reporting_form

TESTS = Path(__file__).parents[1]
METHODS = ("bp", "my-kp", "my-kp@frozen", "my-kp@fixed-feedback", "my-pepita", "udfa-rms", "my-kp(pull=0.5)+pen0.1")
CHANGES = {"width": 8, "depth": 2, "epochs": 2, "batch": 128, "probe.n": 32, "probe.redraws": 19, "probe.epochs": []}
SETTINGS = [part for key, value in CHANGES.items() for part in ("--set", f"{key}={value}".replace(" ", ""))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    data = cs.load_data("synthetic")
    runs = cs.specs(METHODS, data=data, seeds=[1, 2], changes=CHANGES, rules=RULES)
    cs.train(runs, out, data=data, device="cpu", rules=RULES)
    return cs.load_logs(out).logs


def log_of(logs, method):
    return next(log for log in logs if log.spec.method == method)


def test_a_log_carries_the_words_of_its_rule(trained):
    card = log_of(trained, "my-kp").header.card
    assert (card.formula, card.paper, card.family) == (KolenPollack.formula, KolenPollack.paper, "signal")
    assert (card.learns, card.penalty, card.options) == (True, "local", {"start": "random", "pull": 1.0})
    assert log_of(trained, "my-kp(pull=0.5)+pen0.1").header.card.options["pull"] == 0.5
    assert log_of(trained, "my-kp@fixed-feedback").header.card.learns is False
    shown = _text(log_of(trained, "my-pepita"), 3)
    assert Pepita.formula in shown


def test_the_strip_and_the_form_say_them(trained):
    strip = hero_table(trained).strip
    text = {card.name: card.sketch.text for card in strip.rules}
    assert text["my-kp"] == KolenPollack.sketch.text
    assert text["my-kp(pull=0.5)"] == text["my-kp"], "a row of its own, under a name of its own"
    assert text["udfa"] == UniformDirect.sketch.text
    assert text["my-pepita"] == Pepita.injection, "without a sketch, where the credit enters"
    assert len(cs.draw_figure("hero", trained).encode(".png")) > 10_000
    audit = cs.audit(trained)
    forms = {cell.cell.method: dict(reporting_form(cell, audit).rows) for cell in audit.claims}
    assert forms["my-kp"]["Credit formula"] == KolenPollack.formula
    assert forms["my-kp"]["Paper"] == "Kolen & Pollack 1994"
    assert forms["my-kp"]["Feedback"].endswith("learned")
    assert forms["my-pepita"]["Family"] == "update"
    assert forms["udfa-rms"]["Credit formula"].endswith("divided by its RMS")
    assert forms["my-kp(pull=0.5)+pen0.1"]["Options"] == "start = random, pull = 0.5"


def test_twins_of_a_rule_from_outside_are_matched(trained):
    audit = cs.audit(trained)
    depth = {
        cell.cell.method: next(outcome for outcome in cell.outcomes if outcome.name == "depth").baseline
        for cell in audit.claims
    }
    assert (depth["my-kp"]["method"], depth["my-kp"]["matched"]) == ("my-kp@frozen", True)
    assert depth["my-kp@fixed-feedback"] is None, "another rule, so another twin"


def test_report_and_timeline_show_them(trained, tmp_path):
    page = cs.write_report(trained, tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("my-kp@fixed-feedback", "udfa-rms", "my-pepita", "backward pass of BP with W replaced by B"):
        assert words in page
    timed = [run for cell in cs.audit(trained).claims for run in cell.timelines]
    assert len(timed) == 2 * 6


def test_its_own_check_judges_its_own_rules(trained, tmp_path):
    protocol = cs.protocol_named("standard").with_checks(required=[FeedbackMoves()])
    audit = cs.audit(trained, protocol=protocol)
    said = {cell.cell.method: next(o for o in cell.outcomes if o.name == "feedback") for cell in audit.claims}
    assert {method: str(outcome.ruling) for method, outcome in said.items()} == {
        "bp": "not measured",
        "my-kp": "passes",
        "my-kp@fixed-feedback": "not measured",
        "my-kp(pull=0.5)+pen0.1": "passes",
        "my-pepita": "not measured",
        "udfa-rms": "not measured",
    }
    assert "feedback" in [check.name for check in audit.protocol.required]
    assert "least movement of a feedback matrix" in audit.to_text()
    page = cs.write_report(trained, tmp_path / "report.html", protocol=protocol).read_text(encoding="utf-8")
    assert "least movement of a feedback matrix" in page


MODELS = """
from torch import nn
from creditscope.data import synthetic
from creditscope.models.resmlp import ResMLP

def Tall(shape, classes, width, depth, terminal_ln):
    return ResMLP(shape, classes, width=2 * width, depth=depth, terminal_ln=terminal_ln)

def half(folder):
    return synthetic(n_train=400, n_test=100)
"""


def test_models_and_data_sets_of_ones_own_come_by_their_place(tmp_path):
    (tmp_path / "mine.py").write_text(MODELS)
    out = tmp_path / "runs"
    given = ["--model", "mine:Tall", "--data", "mine:half", "--rules", "bp,dfa@frozen", "--seeds", "1"]
    run("train", *given, *SETTINGS, "--out", str(out), path=[tmp_path])
    logs = cs.load_logs(out).logs
    assert {(log.spec.model, log.spec.data.n_train) for log in logs} == {("mine.Tall", 400)}
    assert all(log.finished for log in logs)
    refused = run("train", "--model", "mine:Short", "--dry-run", path=[tmp_path], check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "mine has no Short" in refused.stderr


def run(*arguments, path=(), check=True):
    places = os.pathsep.join([*map(str, path), str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "creditscope", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def test_the_command_line_takes_a_rule_by_its_place_and_then_by_its_name(tmp_path):
    out = tmp_path / "runs"
    rules = "extension.outside:KolenPollack+pen0.1,my-kp@frozen,bp"
    run("train", "--data", "synthetic", "--rules", rules, "--seeds", "1", *SETTINGS, "--out", str(out))
    assert {log.spec.method for log in cs.load_logs(out).logs} == {"my-kp+pen0.1", "my-kp@frozen", "bp"}
    (checkpoint,) = out.glob("my-kp+pen*.safetensors")
    unknown = run("probe", str(checkpoint), check=False)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "unknown rule 'my-kp'" in unknown.stderr
    assert "measured" in run("probe", str(checkpoint), "--rules", "extension.outside:KolenPollack").stdout
    refused = run("train", "--rules", "extension.outside:Pepita+pen0.1", "--dry-run", check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "a penalty on the branches does not apply to my-pepita; drop +pen" in refused.stderr


def test_an_entry_point_is_listed_without_being_imported_and_then_trains(tmp_path):
    dist = tmp_path / "kp_rules-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: kp-rules\nVersion: 1.0\n")
    places = "my-kp = extension.outside:KolenPollack\nbroken = nowhere.at_all:Rule\n"
    (dist / "entry_points.txt").write_text(f"[creditscope.rules]\n{places}")
    # A long list may be wrapped at a hyphen.
    told = re.sub(r"-\s+", "-", re.sub(r"\s+", " ", run("train", "--help", path=[tmp_path]).stdout))
    assert ", my-kp, broken" in told
    out = tmp_path / "runs"
    run(
        *(
            "train",
            "--data",
            "synthetic",
            "--rules",
            "my-kp@fixed-feedback",
            "--seeds",
            "1",
            *SETTINGS,
            "--out",
            str(out),
        ),
        path=[tmp_path],
    )
    assert [log.spec.method for log in cs.load_logs(out).logs] == ["my-kp@fixed-feedback"]
    lost = run("train", "--data", "synthetic", "--rules", "broken", "--dry-run", path=[tmp_path], check=False)
    assert (lost.returncode, lost.stderr.count("\n")) == (2, 1)
    assert "rule 'nowhere.at_all:Rule': cannot be imported" in lost.stderr


KILLED = """
import os, signal, sys
import creditscope as cs
from creditscope.engine import loop
from extension.outside import RULES
loop.CHECKPOINT_SECONDS = 0.0
kill = sys.argv[2] == "kill"
def on_row(header, row):
    if kill and row.kind == "epoch" and row.epoch == 3:
        os.kill(os.getpid(), signal.SIGKILL)
data = cs.load_data("synthetic")
changes = {"width": 8, "depth": 2, "epochs": 4, "batch": 128, "probe.n": 16, "probe.redraws": 3, "probe.epochs": []}
runs = cs.specs(["my-kp", "my-wm", "my-pepita", "bp"], data=data, seeds=[1, 2], changes=changes, rules=RULES)
cs.train(runs, sys.argv[1], data=data, device="cpu", rules=RULES, resume=True, on_row=on_row)
"""


def rows(folder):
    """Every row but times, by file."""
    skip = ("time_epoch", "time_probe", "time_total", "time_created", "provenance")
    return {
        path.name: [
            {key: value for key, value in json.loads(line).items() if key not in skip}
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        for path in sorted(folder.glob("*.jsonl"))
    }


def test_killed_and_resumed_is_undisturbed_state_included(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}

    def go(folder, how):
        command = [sys.executable, "-c", KILLED, str(folder), how]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    whole, torn = tmp_path / "whole", tmp_path / "torn"
    assert go(whole, "on").returncode == 0
    assert go(torn, "kill").returncode == -signal.SIGKILL
    assert any(torn.glob("*.safetensors")), "a checkpoint with state was saved before the kill"
    assert go(torn, "on").returncode == 0
    assert rows(torn) == rows(whole)
    from creditscope.engine.checkpoint import read_checkpoint

    for path in sorted(whole.glob("*.safetensors")):
        ours, theirs = (read_checkpoint(folder / path.name)[0] for folder in (whole, torn))
        assert set(ours) == set(theirs)
        assert any(name.startswith("state/") for name in ours) == ("bp" not in path.name)
        assert all(bool((ours[name] == theirs[name]).all()) for name in ours), path.name
