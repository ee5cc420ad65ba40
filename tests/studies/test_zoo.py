"""A tiny zoo through the command line: what is tuned, what stands in the logs, and that going on changes nothing."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from cases.tiny_zoo import tiny_zoo
from typer.testing import CliRunner

from creditscope.cli import app
from creditscope.data import load_data
from creditscope.data.dataset import hold_out
from creditscope.errors import BadInput
from creditscope.plans.zoo import RATES
from creditscope.protocol.audit import audit
from creditscope.records.load import load_logs
from creditscope.studies import zoo
from creditscope.studies.zoo import plan_zoo, zoo_logs

ROOT = Path(__file__).parents[2]
METHODS = ("bp", "bp@frozen", "bp@readout", "dfa", "dfa@frozen", "kp", "kp@fixed-feedback", "kp@frozen")


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", "zoo", "--small", *arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "SMALL", tiny_zoo())
        result = run("--out", str(folder), "--device", "cpu")
        assert result.exit_code == 0, result.output
        yield folder, result.output


def test_the_plan_and_its_time_come_first(made):
    lines = made[1].splitlines()
    assert re.fullmatch(r"resmlp +synthetic +8 +24 of 1 epochs +24 of 2 epochs +–", lines[2].strip())
    assert lines[3] == "48 runs in all"
    assert re.fullmatch(r"about \d+\.\d minutes of training steps on this device, measuring apart", lines[4])
    assert "verdict" in made[1]


def test_every_method_is_tuned_alike_on_the_last_training_samples(made):
    tried = load_logs(made[0] / "resmlp" / "tuning").logs
    assert len(tried) == len(METHODS) * len(RATES)
    held = hold_out(load_data("synthetic"), 1000)
    assert {log.spec.data for log in tried} == {held.spec}
    for method in METHODS:
        assert sorted(log.spec.optimiser.lr for log in tried if log.spec.method == method) == sorted(RATES)


def test_the_logs_say_how_their_rate_was_chosen_and_have_it(made):
    tried = load_logs(made[0] / "resmlp" / "tuning").logs
    logs = zoo_logs(made[0])
    assert sorted({log.spec.method for log in logs}) == sorted(METHODS)
    assert len(logs) == len(METHODS) * 3
    for log in logs:
        own = {each.spec.optimiser.lr: each.last.test_accuracy for each in tried if each.spec.method == log.spec.method}
        tuned = log.spec.tuned
        assert dict(zip(tuned.rates, tuned.accuracy, strict=True)) == own
        assert own[log.spec.optimiser.lr] == max(own.values())
        assert (tuned.held_out, tuned.epochs, tuned.seed) == (1000, 1, 42)


def test_twins_match_whatever_their_rates(made):
    cells = {judged.cell.method: judged.cell for judged in audit(zoo_logs(made[0])).cells}
    for method in ("dfa", "kp"):
        assert cells[method].baseline.matched
        assert cells[method].baseline.method == f"{method}@frozen"
        assert len(cells[method].related.control) == len(cells[method].related.control_frozen) == 3
        assert cells[method].related.readouts
    assert len(cells["kp"].related.fixed_feedback) == 3


def test_going_on_trains_nothing_and_changes_no_log(made):
    before = {path: path.read_bytes() for path in made[0].glob("*/*/*.jsonl")}
    result = run("--out", str(made[0]), "--resume", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert {path: path.read_bytes() for path in made[0].glob("*/*/*.jsonl")} == before


def test_held_out_samples_are_the_last_of_the_training_split():
    data = load_data("synthetic")
    held = hold_out(data, 96)
    assert torch.equal(held.x_train, data.x_train[:4000])
    assert torch.equal(held.x_test, data.x_train[4000:])
    assert torch.equal(held.y_test, data.y_train[4000:])
    assert held.name == "synthetic-held-out"
    with pytest.raises(BadInput, match="synthetic: 4096 of 4096 training samples cannot be held out; choose 1 to 4095"):
        hold_out(data, 4096)


def test_a_rule_that_cannot_train_a_model_is_left_out_by_name(monkeypatch):
    monkeypatch.setattr(zoo, "SMALL", tiny_zoo(("bp", "wm", "no-such-rule"), ("bp+pen0.1", "drtp-rms@last9")))
    (planned,) = plan_zoo(True, None, None, None)
    rules = ("bp", "bp@frozen", "bp@readout", "wm", "wm@fixed-feedback", "wm@frozen")
    assert planned.methods == (*rules, "bp+pen0.1", "bp+pen0.1@frozen", "bp+pen0.1@readout")
    assert set(planned.left_out) == {"no-such-rule", "drtp-rms@last9"}
    assert "unknown rule 'no-such-rule'" in planned.left_out["no-such-rule"]


def test_some_rules_of_some_parts(monkeypatch):
    monkeypatch.setattr(zoo, "SMALL", tiny_zoo())
    (planned,) = plan_zoo(True, ["resmlp"], ["dfa"], None)
    assert planned.methods == ("dfa", "dfa@frozen")
    with pytest.raises(BadInput, match="these parts of the zoo have no rule 'dfx'; did you mean 'dfa'"):
        plan_zoo(True, None, ["dfx"], None)


def test_options_of_the_zoo_are_refused_elsewhere():
    result = CliRunner().invoke(app, ["reproduce", "demo", "--small"])
    assert result.exit_code != 0
    assert "--small, --part and --rules are options of zoo, got 'demo'; drop them" in str(result.exception)


def test_the_picture_and_its_data_lie_in_the_folder(made):
    for suffix in (".pdf", ".png", ".csv"):
        assert (made[0] / f"survival{suffix}").stat().st_size > 300


def test_packed_logs_are_smaller_and_judged_alike(made, tmp_path):
    spec = importlib.util.spec_from_file_location("pack_zoo", ROOT / "results" / "pack_zoo.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.pack(made[0], tmp_path / "zoo")
    packed = load_logs(tmp_path / "zoo").logs
    raw = zoo_logs(made[0])
    assert {log.spec.run_id for log in packed} == {log.spec.run_id for log in raw}
    found, wanted = (
        {
            each.cell.method: [(o.name, o.ruling, o.evidence.value, o.evidence.grade) for o in each.outcomes]
            for each in audit(logs).claims
        }
        for logs in (packed, raw)
    )
    assert found == wanted
    for log in packed:
        (probe,) = log.probes
        assert probe.null is None or (probe.null.draws is None) == log.spec.is_baseline
        assert probe.null_published is None or probe.null_published.draws is None
    assert any(log.probes[0].null is not None and log.probes[0].null.draws for log in packed)
    page = script.readme(tmp_path / "zoo")
    assert f"{len(raw)} runs, " in page
    assert "| resmlp | synthetic | 2 | 8 | 24 | " in page
