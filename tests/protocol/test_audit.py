"""The golden logs, the documented JSON, bad input, and a fuzz over records."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol import cases

from creditscope.errors import BadInput, CreditscopeError
from creditscope.protocol import audit
from creditscope.records import EpochRow, LogWriter
from creditscope.records.load import load_logs
from creditscope.records.measured import Cosines, Fidelity, Movement, Norms, NullTest

GOLDEN = Path(__file__).parents[1] / "golden" / "published"
CHECK_KEYS = {
    "name",
    "outcome",
    "grade",
    "value",
    "unit",
    "interval",
    "threshold",
    "distance",
    "per_seed",
    "first_epoch",
    "baseline",
    "reason",
    "settles",
}


@pytest.fixture(scope="module")
def golden():
    return audit(GOLDEN, "published", baseline=0.349).to_dict()


def cell(audited, method):
    (found,) = [c for c in audited["cells"] if c["method"] == method]
    return found, {check["name"]: check for check in found["checks"]}


def raw(name):
    return json.loads((GOLDEN / name).read_text())


def test_golden_dfa_is_walked_back_by_scale_reference_and_depth_with_their_epochs(golden):
    found, checks = cell(golden, "dfa")
    assert found["verdict"] == "walked back"
    assert [reason.split()[0] for reason in found["reasons"]] == ["scale", "reference", "depth"]
    rows = raw("snapshot_evolution_s42.json")["dfa_log"]
    growth = [max(b / a for a, b in zip(r["hidden_norms"], r["hidden_norms"][1:], strict=False)) for r in rows]
    floor = [r["bp_grad_norms_per_sample_med"][-1] for r in rows]
    assert checks["scale"]["value"] == growth[-1]
    assert checks["scale"]["first_epoch"] == next(i for i, g in enumerate(growth) if g > 50)
    assert checks["reference"]["value"] == pytest.approx(128 * floor[-1])
    assert checks["reference"]["first_epoch"] == next(i for i, g in enumerate(floor) if g < 1e-7)
    assert checks["depth"]["value"] == pytest.approx(100 * (rows[-1]["acc_eval"] - 0.349))
    assert checks["depth"]["first_epoch"] == 100
    assert [checks[n]["outcome"] for n in ("scale", "reference", "depth")] == ["fires"] * 3
    assert [checks[n]["grade"] for n in ("scale", "reference", "depth")] == ["exact", "exact", "proxy"]


def test_golden_bp_passes_what_is_measured_and_is_incomplete_for_want_of_a_matched_baseline(golden):
    found, checks = cell(golden, "bp")
    assert {n: (c["outcome"], c["grade"]) for n, c in checks.items() if c["required"]} == {
        "scale": ("passes", "exact"),
        "reference": ("passes", "exact"),
        "depth": ("passes", "proxy"),
    }
    assert found["verdict"] == "incomplete"
    assert "bare number" in found["reasons"][0]
    assert any("train bp@frozen" in line for line in found["settles"])
    assert all(c["first_epoch"] is None for c in checks.values())


@pytest.mark.parametrize("penalty", ["0.0001", "0.01", "0.1"])
def test_golden_penalised_logs_are_bounded_from_above_only(golden, penalty):
    _, checks = cell(golden, f"dfa+pen{penalty}")
    rows = raw(f"dfa_pen_lam{penalty}_s42.json")["log"]
    scale, reference, depth = checks["scale"], checks["reference"], checks["depth"]
    assert (scale["outcome"], scale["grade"], scale["value"]) == ("undecided", "proxy", None)
    assert scale["interval"] == [None, pytest.approx(rows[-1]["h_L_norm"] / (rows[0]["h_L_norm"] * 0.4**3))]
    assert "bounded from above only" in scale["reason"]
    assert "L = 4" in scale["reason"]
    assert (reference["outcome"], reference["grade"]) == ("passes", "proxy")
    assert reference["value"] == pytest.approx(128 * rows[-1]["g_2_norm"])
    assert "g_2 stands in for g_L" in reference["reason"]
    margin = 100 * (rows[-1]["acc_eval"] - 0.349)
    assert (depth["outcome"], depth["grade"]) == ("fires" if margin < 2 else "passes", "proxy")
    assert "unmatched" in depth["reason"]
    assert depth["baseline"]["matched"] is False


def test_the_documented_shape(golden):
    assert {"protocol", "version", "cells", "skipped"} <= set(golden)
    assert golden["protocol"] == "published"
    for found in golden["cells"]:
        assert {"method", "role", "seeds", "verdict", "reasons", "checks"} <= set(found)
        assert found["role"] in ("claim", "baseline")
        assert found["verdict"] in ("trustworthy", "walked back", "incomplete")
        for check in found["checks"]:
            assert set(check) >= CHECK_KEYS
            assert check["outcome"] in ("passes", "fires", "undecided", "not measured")
            assert check["grade"] in ("exact", "bounded", "proxy", "missing")
    json.dumps(golden, allow_nan=False)


def test_a_baseline_cell_has_no_verdict_and_no_checks():
    audited = audit(cases.healthy("dfa")).to_dict()
    assert [(c["role"], c["verdict"], c["checks"]) for c in audited["cells"]][1] == ("baseline", None, [])
    assert audited["cells_judged"] == 1


def test_thresholds_are_overridable_and_recorded():
    logs = [*cases.cell("dfa", replace(cases.ALIGNED, growth=(30.0, 1, 1, 1))), *cases.opponents("dfa")]
    assert cell(audit(logs).to_dict(), "dfa")[0]["verdict"] == "trustworthy"
    audited = audit(logs, thresholds={"scale": 20}).to_dict()
    assert cell(audited, "dfa")[0]["verdict"] == "walked back"
    assert audited["overrides"] == {"scale": 20}
    assert audited["thresholds"]["scale"] == 20


def test_what_is_assumed_is_recorded():
    audited = audit(GOLDEN, "published", baseline=0.349, assume={"blocks": 2, "h0": 9.0}).to_dict()
    assert audited["assumed"] == {"blocks": 2, "h0": 9.0, "ratio": 0.4}
    _, checks = cell(audited, "dfa+pen0.01")
    assert "L = 2 (assumed by the user" in checks["scale"]["reason"]


def test_paths_logs_and_loaded_give_the_same_audit():
    by_path = audit(GOLDEN, "published", baseline=0.349).to_dict()
    loaded = load_logs([GOLDEN])
    assert audit(loaded, "published", baseline=0.349).to_dict() == by_path
    assert audit(list(loaded.logs), "published", baseline=0.349).to_dict() == by_path
    assert audit([str(GOLDEN)], "published", baseline=0.349).to_dict() == by_path


def test_a_bad_file_is_skipped_by_name_and_the_others_are_judged(tmp_path):
    (tmp_path / "bad.json").write_text('{"log": [{"epoch": 0, "h_L_norm": -1}]}')
    audited = audit([GOLDEN, tmp_path], "published", baseline=0.349).to_dict()
    assert len(audited["cells"]) == 5
    assert audited["skipped"] == [
        {"file": str(tmp_path / "bad.json"), "why": "log[0].h_L_norm: a norm cannot be negative, got -1"}
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "nothing to judge"),
        (([], "harsh"), "unknown protocol 'harsh'"),
        (("nowhere.json",), "nothing to judge"),
        ((GOLDEN, "published", 34.9), "a baseline accuracy is a fraction"),
        ((GOLDEN, "published", math.nan), "a baseline accuracy is a fraction"),
        ((GOLDEN, "published", "nowhere.json"), "baseline= holds no readable log"),
        ((GOLDEN, "published", None, {"scael": 40}), "did you mean 'scale'"),
        ((GOLDEN, "published", None, {"direction": 0.1}), "has no check 'direction'"),
        ((GOLDEN, "published", None, {"scale": math.inf}), "must be a finite number"),
        ((GOLDEN, "published", None, {"scale": -1}), "must be a finite number"),
        ((GOLDEN, "standard", None, {"fidelity": 2}), "must be a finite number in"),
        ((GOLDEN, "published", None, None, {"blok": 4}), "did you mean 'blocks'"),
        ((GOLDEN, "published", None, None, {"blocks": 2.5}), "whole number"),
        ((GOLDEN, "published", None, None, {"h0": -1}), "positive number"),
        ((GOLDEN, "published", None, None, {"ratio": 1.5}), "at most 1"),
    ],
)
def test_bad_use_is_one_line_that_says_what_to_do(arguments, message):
    with pytest.raises(BadInput) as caught:
        audit(*arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_baselines_is_nothing_to_judge():
    with pytest.raises(BadInput, match="only baselines"):
        audit(cases.cell("dfa@frozen", cases.FROZEN))


def test_a_log_without_epochs_is_incomplete_not_a_crash():
    empty = replace(cases.run(), epochs=(), probes=(), end=None)
    found = audit([empty]).to_dict()["cells"][0]
    assert found["verdict"] == "incomplete"
    asked = {check["name"]: check["outcome"] for check in found["checks"]}
    assert asked.pop("ladder") == "not applicable"
    assert set(asked.values()) == {"not measured"}


def test_unequal_seeds_and_epochs_are_judged():
    logs = [cases.run("dfa", seed, epochs=5) for seed in (1, 2)]
    truncated = replace(logs[1], epochs=logs[1].epochs[:3], probes=logs[1].probes[:2], end=None)
    found = audit([logs[0], truncated, *cases.cell("dfa@frozen", cases.FROZEN)]).to_dict()["cells"][0]
    assert found["epochs"] == [5, 2]
    assert found["finished"] == [True, False]


def test_the_same_run_given_twice_is_counted_once():
    logs = cases.healthy("dfa")
    audited = audit([*logs, logs[0]]).to_dict()
    assert audited["cells"][0]["seeds"] == [42, 123, 456]
    assert any("same run" in problem for problem in audited["cells"][0]["problems"])


def test_the_notebook_form_is_escaped():
    log = cases.run()
    spec = log.spec.model_copy(update={"rule": "<script>alert(1)</script>", "origin": "import"})
    page = audit([replace(log, header=log.header.model_copy(update={"spec": spec}))])._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_log_of_ours_from_a_file_is_judged_as_in_memory(tmp_path):
    logs = sorted(cases.healthy("dfa"), key=lambda log: log.name)
    for log in logs:
        writer = LogWriter(tmp_path / log.name)
        writer.create(log.header)
        for row in list(log.rows())[1:]:
            writer.append(row)
    assert audit(tmp_path).to_dict() == audit(logs).to_dict()


FLOATS = st.none() | st.floats(0, 1e12) | st.sampled_from([0.0, math.inf, math.nan, 1e-300])
LISTS = st.lists(FLOATS, max_size=6)
UNIT = st.none() | st.floats(-1, 1)
UNITS = st.lists(UNIT, max_size=6)
STATUS = st.sampled_from(
    ["ok", "zero-vector", "below-fidelity", "no-credit-saved", "exact-by-construction", "not measured"]
)
ROWS = st.builds(
    EpochRow,
    epoch=st.just(0),
    test_accuracy=st.none() | st.floats(0, 1),
    hidden=st.none() | st.builds(Norms, median=LISTS),
    reference=st.none() | st.builds(Norms, median=LISTS),
    error=FLOATS,
    gain=st.none() | LISTS,
    growth=st.none() | LISTS,
    branch=st.none() | LISTS,
    cosine=st.none() | st.builds(Cosines, mean=UNITS, status=st.lists(STATUS, max_size=6)),
    movement=st.none()
    | st.builds(
        Movement,
        weights=st.dictionaries(st.sampled_from("abc"), FLOATS),
        blocks=st.lists(st.lists(st.sampled_from("abc"), max_size=2), max_size=4),
        trainable=st.lists(st.booleans(), max_size=4),
    ),
    nonfinite=st.dictionaries(st.sampled_from(["hidden.median[0]", "gain[1]", "fidelity.median[0]"]), st.just("nan")),
)
NULLS = st.builds(
    NullTest,
    observed=UNITS,
    p=st.lists(st.none() | st.floats(0, 1), max_size=6),
    mean=UNITS,
    sd=LISTS,
    redraws=st.integers(0, 999),
    draws=st.none() | st.lists(st.lists(UNIT, max_size=5), max_size=6),
)
PROBES = st.fixed_dictionaries(
    {
        "null": st.none() | NULLS,
        "fidelity": st.none() | st.builds(Fidelity, median=UNITS, dtype=st.just("float32")),
        "probe_accuracy": st.none() | st.lists(st.none() | st.floats(0, 1), max_size=6),
    }
)


@settings(max_examples=150)
@given(
    rows=st.lists(ROWS, max_size=3),
    probe=PROBES,
    protocol=st.sampled_from(["standard", "published"]),
    baseline=st.none() | st.floats(0, 1),
    depth=st.none() | st.integers(1, 5),
    exact=st.none() | st.lists(st.booleans(), max_size=6),
)
def test_no_record_raises_and_every_audit_is_json(rows, probe, protocol, baseline, depth, exact):
    log = cases.run()
    spec = log.spec.model_copy(update={"origin": "watch", "depth": depth})
    header = log.header.model_copy(update={"spec": spec, "exact": exact})
    epochs = tuple(row.model_copy(update={"epoch": epoch}) for epoch, row in enumerate(rows))
    probes = (log.probes[-1].model_copy(update=probe),)
    try:
        audited = audit([replace(log, header=header, epochs=epochs, probes=probes)], protocol, baseline)
    except CreditscopeError as error:
        pytest.fail(f"a readable log was refused: {error}")
    found = audited.to_dict()
    json.dumps(found, allow_nan=False)
    assert not any("the check failed" in check["reason"] for c in found["cells"] for check in c["checks"])
    audited.to_text(80)
    audited.to_markdown()
    audited.to_latex()
