"""Foreign logs: values against a plain reading of the same JSON; every bad field named."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from creditscope.errors import BadFile
from creditscope.records import RunLog
from creditscope.records.layouts import import_logs

GOLDEN = Path(__file__).parents[1] / "golden" / "published"


def content(name):
    return json.loads((GOLDEN / name).read_text())


def penalty(*rows, **top):
    return {"log": list(rows), **top}


def row(epoch=0, **fields):
    return {"epoch": epoch, "h_L_norm": 9.0, "g_2_norm": 0.008, "acc_eval": 0.1, **fields}


def snapshot_row(epoch=0, **fields):
    norms = {"hidden_norms": [9.0, 9.1, 9.2], "bp_grad_norms_per_sample_med": [0.1, 0.2, 0.3]}
    return {"epoch": epoch, **norms, "acc_eval": 0.1, "gamma_dfa": 0.5, **fields}


def test_the_golden_snapshot_is_read_number_by_number():
    raw = content("snapshot_evolution_s42.json")
    logs = {log.spec.method: log for log in import_logs("snapshot_evolution_s42.json", raw)}
    assert set(logs) == {"bp", "dfa"}
    for method, log in logs.items():
        entries = raw[f"{method}_log"]
        assert [r.epoch for r in log.epochs] == [e["epoch"] for e in entries] == list(range(101))
        for r, e in zip(log.epochs, entries, strict=True):
            assert r.hidden.median == e["hidden_norms"]
            assert r.reference.median == [128 * value for value in e["bp_grad_norms_per_sample_med"]]
            assert (r.test_accuracy, r.gamma.published) == (e["acc_eval"], e["gamma_dfa"])
        spec = log.spec
        assert (spec.origin, spec.seed, spec.depth, spec.width, spec.epochs) == ("import", 42, 4, 256, 100)
        assert (spec.credit_norm, spec.probe.reduction, log.finished) == (None, "sum", True)
        assert log.header.source["reference_units"] == "mean-reduced at N=128, as stated; multiplied by 128"
        assert "from_file_name" not in log.header.source


@pytest.mark.parametrize("penalty_value", [0.0001, 0.01, 0.1])
def test_the_golden_penalty_logs_are_read_number_by_number(penalty_value):
    name = f"dfa_pen_lam{penalty_value:g}_s42.json"
    raw = content(name)
    (log,) = import_logs(name, raw)
    assert log.spec.method == f"dfa+pen{penalty_value:g}"
    assert (log.spec.seed, log.spec.depth, log.spec.probe.reduction) == (42, None, None)
    assert log.header.source["from_file_name"] == "rule, penalty, seed"
    for r, e in zip(log.epochs, raw["log"], strict=True):
        assert r.hidden.median == [None] * 4 + [e["h_L_norm"]]
        assert r.reference.median == [None, None, 128 * e["g_2_norm"], None, None]
        assert r.test_accuracy == e["acc_eval"]
    assert log.finished
    assert log.end.test_accuracy == raw["final_test_acc"]


def test_aliases_mean_the_same():
    first = snapshot_row()
    second = {
        "epoch": 0,
        "residual_norms": first["hidden_norms"],
        "bp_grad_norms": first["bp_grad_norms_per_sample_med"],
        "test_acc": 0.1,
        "gamma_dfa": 0.5,
    }
    third = {**second, "bp_grad_per_sample_l2_med": second["bp_grad_norms"]}
    del third["bp_grad_norms"]
    (a,), (b,), (c,) = (import_logs("x.json", {"fa_log": [entry]}) for entry in (first, second, third))
    assert a.epochs == b.epochs == c.epochs
    assert a.spec.rule == "fa"
    (end,) = import_logs("dfa_s1.json", penalty(row(), final_acc=0.4))
    assert end.end.test_accuracy == 0.4


def test_the_class_token_layout_says_its_view():
    (log,) = import_logs("x.json", {"bp_log": [{"epoch": 0, "hidden_norms_cls": [1.0, 2.0], "acc_eval": 0.1}]})
    assert log.spec.view == "cls"


def test_dfa_is_called_dfa_rms_only_when_the_content_says_so():
    stated = {"config": {"credit_norm": "rms"}, "dfa_log": [snapshot_row()]}
    assert import_logs("x.json", stated)[0].spec.method == "dfa-rms"
    assert import_logs("dfa-rms_s1.json", {"dfa_log": [snapshot_row()]})[0].spec.method == "dfa"


def test_content_comes_before_the_file_name():
    raw = penalty(row(), config={"seed": 7, "lam": 0.5, "rule": "fa"}, final_test_acc=0.2)
    (log,) = import_logs("dfa_pen_lam0.01_s42.json", raw)
    assert (log.spec.seed, log.spec.method) == (7, "fa+pen0.5")
    assert "from_file_name" not in log.header.source


@pytest.mark.parametrize(
    ("config", "factor", "known"),
    [
        ({"reduction": "sum"}, 1, True),
        ({"reduction": "mean", "probe_size": 64}, 64, True),
        ({"reduction": "mean"}, 128, False),
        ({}, 128, False),
    ],
)
def test_units_are_converted_where_stated_and_assumed_where_not(config, factor, known):
    (log,) = import_logs("x.json", {"config": config, "bp_log": [snapshot_row()]})
    assert log.epochs[0].reference.median == pytest.approx([0.1 * factor, 0.2 * factor, 0.3 * factor], rel=1e-15)
    assert (log.spec.probe.reduction == "sum") is known
    assert ("not stated" in log.header.source["reference_units"]) is not known


def test_a_diverged_run_keeps_its_epoch_and_loses_only_the_broken_values():
    text = '{"dfa_log": [{"epoch": 0, "hidden_norms": [9, 9]}, {"epoch": 1, "hidden_norms": [9, NaN], "acc_eval": 0.1},'
    text += ' {"epoch": 2, "hidden_norms": [Infinity, -Infinity], "acc_eval": NaN}]}'
    (log,) = import_logs("x.json", json.loads(text))
    assert [r.hidden.median for r in log.epochs] == [[9.0, 9.0], [9.0, None], [None, None]]
    assert log.epochs[1].nonfinite == {"hidden.median[1]": "nan"}
    assert log.epochs[2].nonfinite == {"hidden.median[0]": "inf", "hidden.median[1]": "-inf", "test_accuracy": "nan"}
    assert (log.end.status, log.end.epoch) == ("diverged", 1)


def test_null_means_unknown():
    (log,) = import_logs("x.json", {"dfa_log": [{"epoch": 3, "hidden_norms": [1.0, None, 4.0], "acc_eval": None}]})
    assert log.epochs[0].hidden.median == [1.0, None, 4.0]
    assert log.epochs[0].test_accuracy is None


def test_a_run_cut_short_is_not_finished():
    (log,) = import_logs("x.json", {"config": {"epochs": 100}, "bp_log": [snapshot_row(0), snapshot_row(1)]})
    assert not log.finished
    assert "stops at epoch 1 of 100" in log.problems[0]
    (log,) = import_logs("dfa_s1.json", penalty(row()))
    assert not log.finished


def test_gaps_in_the_epochs_are_said():
    (log,) = import_logs("x.json", {"bp_log": [snapshot_row(0), snapshot_row(5)]})
    assert any("1 gaps in the epochs, the first after epoch 0" in problem for problem in log.problems)


BAD = {
    "negative norm": ({"dfa_log": [snapshot_row(hidden_norms=[9.0, -1.0, 2.0])]}, "dfa_log[0].hidden_norms[1]"),
    "negative h_L": (penalty(row(h_L_norm=-3)), "log[0].h_L_norm"),
    "negative g_2": (penalty(row(g_2_norm=-1e-9)), "log[0].g_2_norm"),
    "accuracy in percent": (penalty(row(), row(1, acc_eval=34.9)), "log[1].acc_eval"),
    "final accuracy in percent": (penalty(row(), final_test_acc=34.9), "final_test_acc"),
    "a norm as text": (penalty(row(h_L_norm="NaN")), "log[0].h_L_norm"),
    "a norm as bool": (penalty(row(h_L_norm=True)), "log[0].h_L_norm"),
    "a list where a number stands": (penalty(row(acc_eval=[0.1])), "log[0].acc_eval"),
    "a number where a list stands": ({"bp_log": [snapshot_row(hidden_norms=9.0)]}, "bp_log[0].hidden_norms"),
    "one norm": ({"bp_log": [snapshot_row(hidden_norms=[9.0])]}, "bp_log[0].hidden_norms"),
    "a cosine above 1": ({"bp_log": [snapshot_row(gamma_dfa=1.2)]}, "bp_log[0].gamma_dfa"),
    "no epoch": (penalty({"h_L_norm": 9.0}), "log[0].epoch"),
    "half an epoch": (penalty(row(0.5)), "log[0].epoch"),
    "epochs that go back": (penalty(row(1), row(1)), "log[1].epoch"),
    "an empty list": (penalty(), "log"),
    "no list": ({"log": 3}, "log"),
    "a row that is no object": (penalty(3), "log[0]"),
    "a row without known fields": (penalty({"epoch": 0, "loss": 1}), "log[0]"),
    "lists of two lengths": ({"bp_log": [snapshot_row(), snapshot_row(1, hidden_norms=[1.0, 2.0])]}, "bp_log"),
    "blocks that contradict the lists": ({"config": {"num_blocks": 5}, "bp_log": [snapshot_row()]}, "bp_log"),
    "a config that is no object": ({"config": 3, "bp_log": [snapshot_row()]}, "config"),
    "an unknown reduction": ({"config": {"reduction": "max"}, "bp_log": [snapshot_row()]}, "reduction"),
    "a probe of size 0": ({"config": {"probe_size": 0}, "bp_log": [snapshot_row()]}, "probe_size"),
    "a negative penalty": ({"config": {"lam": -1}, "log": [row()]}, "penalty"),
    "a seed as text": ({"config": {"seed": "42"}, "bp_log": [snapshot_row()]}, "config.seed"),
    "a width of 0": ({"config": {"d_hidden": 0}, "bp_log": [snapshot_row()]}, "config"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_its_name_and_field(case):
    raw, where = BAD[case]
    with pytest.raises(BadFile) as caught:
        import_logs("run.json", raw)
    assert str(caught.value).startswith("run.json: ")
    assert where in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [[], {}, 3, None, {"logs": []}, {"accuracy": 0.5}])
def test_what_is_no_log_is_called_so(raw):
    with pytest.raises(BadFile, match=r"x\.json: not a log"):
        import_logs("x.json", raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["epoch", "h_L_norm", "g_2_norm", "acc_eval", "hidden_norms", "bp_grad_norms", "gamma_dfa"]),
    JSON | st.lists(st.floats() | st.none(), min_size=2, max_size=4) | st.integers(0, 9),
)


@given(
    rows=st.lists(FIELDS | JSON, max_size=3) | JSON,
    key=st.sampled_from(["log", "bp_log", "dfa_log"]),
    config=st.dictionaries(st.sampled_from(["seed", "epochs", "num_blocks", "reduction", "lam", "rule"]), JSON) | JSON,
    final=JSON,
)
def test_any_content_is_either_read_or_refused(rows, key, config, final):
    try:
        logs = import_logs("f.json", {key: rows, "config": config, "final_test_acc": final})
    except BadFile:
        return
    for log in logs:
        assert isinstance(log, RunLog)
        norms = [n for r in log.epochs for n in (r.hidden, r.reference) if n is not None]
        assert all(v is None or (v >= 0 and math.isfinite(v)) for n in norms for v in n.median)
        assert all(r.test_accuracy is None or 0 <= r.test_accuracy <= 1 for r in log.epochs)
