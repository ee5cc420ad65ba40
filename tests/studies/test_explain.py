"""Explain on real, tiny trainings: the plan, what is refused, resume, a diverging change, the command line."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from protocol import cases
from typer.testing import CliRunner

import creditscope as cs
from creditscope import cli
from creditscope.errors import BadInput
from creditscope.plans.switches import SWITCHES
from creditscope.protocol.effects import Trial
from creditscope.protocol.explanation import Change
from creditscope.records import EndRow
from creditscope.studies.explain import _pairs, plan_explain

TINY = {"epochs": "1", "width": "8", "depth": "2", "probe.n": "64", "batch": "256"}
SEEDS = [1, 2]


@pytest.fixture(scope="module")
def data():
    whole = cs.load_data("fashion-mini")
    parts = (whole.x_train[:768], whole.y_train[:768], whole.x_test[:256], whole.y_test[:256])
    return cs.make_dataset("few", tuple(part.numpy() for part in parts), whole.classes)


def plan(method, data, **options):
    return plan_explain(method, data=data, seeds=SEEDS, changes=TINY, **options)


def test_every_switch_changes_the_recipe_in_one_place_or_says_why_not(data):
    found = plan("dfa", data)
    base = found.specs[""][0]
    assert {*found.flipped, *(name for name, _ in found.refused)} == set(SWITCHES)
    changed = {}
    for name in found.flipped:
        other = found.specs[name][0]
        assert other.seed == base.seed
        fields = type(base).model_fields
        changed[name] = {f for f in fields if getattr(other, f) != getattr(base, f)} - {"feedback", "injection"}
        assert changed[name], name
    for name, fields in {
        "normalisation": {"credit_norm"},
        "terminal-ln": {"terminal_ln"},
        "penalty": {"penalty"},
        "embedding-feedback": {"options"},
        "feedback-scale": {"options"},
        "feedback-distribution": {"options"},
        "second-map": {"architecture"},
        "weight-decay": {"optimiser"},
        "optimiser": {"optimiser"},
        "lr-up": {"optimiser"},
        "schedule": {"schedule"},
        "batch": {"batch"},
        "depth": {"depth"},
        "width": {"width"},
        "learned-feedback": {"rule"},
    }.items():
        assert changed[name] == fields, name


def test_each_recipe_has_its_own_frozen_twin(data):
    for specs in plan("dfa+pen0.01", data, switches=["normalisation", "penalty"]).specs.values():
        claims = [spec for spec in specs if not spec.is_baseline]
        twins = [spec for spec in specs if spec.is_baseline]
        assert len(claims) == len(twins) == len(SEEDS)
        assert {spec.match_key for spec in claims} == {spec.match_key for spec in twins}


@pytest.mark.parametrize(
    ("method", "switches", "line"),
    [
        ("dfa-rms", ["feedback-scale"], "does not depend on the scale of the feedback"),
        ("bp", ["normalisation"], "-rms divides the signal"),
        ("bp", ["learned-feedback"], "the feedback of bp cannot learn"),
        ("dfa", ["normalization"], "did you mean 'normalisation'"),
        ("dfa@frozen", None, "some of its blocks do not train"),
    ],
)
def test_what_a_recipe_does_not_have_is_refused_by_name(data, method, switches, line):
    with pytest.raises(BadInput, match=line):
        plan(method, data, switches=switches)


def test_an_explanation_trains_once_and_the_same_again(data, tmp_path):
    asked = {"data": data, "seeds": SEEDS, "changes": TINY, "switches": ["normalisation", "lr-up"]}
    first = cs.explain("dfa-rms", out=tmp_path, **asked)
    names = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    stamps = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.jsonl")}
    again = cs.explain("dfa-rms", out=tmp_path, **asked)
    assert again.to_dict() == first.to_dict()
    assert stamps == {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.jsonl")}
    # The classes of these 256 images differ in size.
    base = {log.spec.seed: log.epochs[-1].balanced_accuracy for log in first.base.runs}
    (change,) = [change for change in first.changes if change.name == "normalisation"]
    other = {log.spec.seed: log.epochs[-1].balanced_accuracy for log in change.trial.runs}
    accuracy = change.effects[0]
    assert accuracy.margin.per_seed == pytest.approx(tuple(other[s] - base[s] for s in SEEDS), abs=1e-6)
    assert len(names) == len(set(names))


def test_a_change_that_diverges_is_an_answer(data, tmp_path):
    found = cs.explain(
        "bp", out=tmp_path, data=data, seeds=SEEDS, changes=TINY | {"lr": "1e18"}, switches=["lr-down"], pairs=0
    )
    assert found.base.diverged == len(SEEDS)
    plain = found.to_dict()
    assert plain["changes"][0]["diverged"] == len(SEEDS)
    assert "2 of 2 runs diverge" in found.to_text()


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    words = ["explain", "dfa-rms", "--seeds", "1,2", "--switches", "normalisation", *settings]
    planned = CliRunner().invoke(cli.app, [*words, "--dry-run"])
    assert planned.exit_code == 0
    assert "8 runs in 1 fleets" in planned.output
    assert "nothing was trained" in planned.output
    done = CliRunner().invoke(cli.app, [*words, "--format", "json", "--figure", "effects.png"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["changes"][0]["switches"] == ["normalisation"]
    assert (tmp_path / "effects.png").read_bytes().startswith(b"\x89PNG")
    assert "accuracy" in (tmp_path / "effects.csv").read_text(encoding="utf-8")
    compared = CliRunner().invoke(cli.app, ["compare", "dfa", "dfa-rms", "--in", "explain-dfa-rms", "--format", "json"])
    assert compared.exit_code == 0, compared.output
    assert json.loads(compared.stdout)["cells"][0]["recipe"] == [{"setting": "credit_norm", "a": "none", "b": "rms"}]


def test_a_budget_screens_first(data, tmp_path):
    changes = TINY | {"epochs": "3"}
    found = cs.explain(
        "dfa-rms",
        out=tmp_path,
        data=data,
        seeds=SEEDS,
        changes=changes,
        switches=["normalisation", "weight-decay"],
        budget=1e-6,
        pairs=0,
    )
    assert [change.name for change in found.screened] == ["normalisation", "weight-decay"]
    assert {run.spec.epochs for change in found.screened for run in change.trial.runs} == {2}
    assert found.changes == ()
    assert "every switch was screened at 2 of 3 epochs" in found.notes[0]


def test_what_diverges_is_not_flipped_beside_another(monkeypatch):
    def change(name, lost):
        trial = Trial(tuple(cases.cell("dfa", cases.ALIGNED)))
        if lost:
            trial = Trial(tuple(replace(run, end=EndRow(status="diverged", epoch=5)) for run in trial.runs))
        return Change((name,), name, trial, ())

    monkeypatch.setattr(Change, "size", property(lambda self: 1.0))
    asked = []
    planner = SimpleNamespace(rules={}, specs=lambda recipe: [None])
    flipped = {name: SimpleNamespace(recipe=name, words=name) for name in ("lr-up", "penalty", "optimiser")}

    def flip(name):
        asked.append(name)
        raise BadInput("as far as this test goes")

    monkeypatch.setattr("creditscope.studies.explain.switch_named", flip)
    changes = [change("lr-up", False), change("optimiser", True), change("penalty", False)]
    assert _pairs(planner, SimpleNamespace(flipped=flipped), changes, 3, {}, None) == ()
    assert asked == ["penalty"]
