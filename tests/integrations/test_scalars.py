"""Flat names and values, against the rows of a real run read as plain JSON."""

import json
import math

from cases.specs import end, header, rows_of
from hypothesis import given
from hypothesis import strategies as st

from creditscope.integrations import config, scalars
from creditscope.records import EndRow, EpochRow, ProbeRow
from creditscope.records.measured import Cosines, Movement, Norms

EPOCH = {
    "train_loss", "test_loss", "test_accuracy", "balanced_accuracy", "lr", "error",
    "gamma/acting", "gamma/deep", "gamma/worst", "gamma/published", "gamma/clamped",
    *(f"{name}/state_{place}" for name in ("hidden", "reference", "gain") for place in range(3)),
    *(f"{name}/state_{place}" for name in ("cosine", "cosine_published") for place in range(3)),
    *(f"{name}/block_{place}" for name in ("growth", "branch", "movement") for place in range(2)),
    "growth/max",
}  # fmt: skip
PROBE = {
    "drift",
    *(f"{name}/state_{place}" for name in ("fidelity", "null_p", "rho", "nudge_efficiency") for place in range(3)),
    *(f"{name}/state_{place}" for name in ("probe_accuracy", "participation") for place in range(3)),
    *(f"{name}/block_{place}" for name in ("gradient_cosine", "step_descent", "idle") for place in range(2)),
}


def test_the_names_are_these_and_no_others(log):
    assert set(scalars(log.epochs[-1])) == EPOCH
    assert set(scalars(log.epochs[0])) == EPOCH - {"train_loss", "lr"}
    assert set(scalars(log.probes[-1])) == PROBE
    assert set(scalars(log.end)) == {"end/finished", "end/test_accuracy"}


def test_the_values_are_those_of_the_log(log):
    epoch, probe = (json.loads(row.model_dump_json()) for row in (log.epochs[-1], log.probes[-1]))
    seen = scalars(log.epochs[-1]) | scalars(log.probes[-1])
    for name in ("train_loss", "test_loss", "test_accuracy", "lr", "error"):
        assert seen[name] == epoch[name]
    for place in range(3):
        assert seen[f"hidden/state_{place}"] == epoch["hidden"]["median"][place]
        assert seen[f"reference/state_{place}"] == epoch["reference"]["median"][place]
        assert seen[f"cosine/state_{place}"] == epoch["cosine"]["mean"][place]
        assert seen[f"null_p/state_{place}"] == probe["null"]["p"][place]
        assert seen[f"rho/state_{place}"] == probe["rho"]["credit"][place]
        assert seen[f"nudge_efficiency/state_{place}"] == probe["nudge"]["efficiency"][place]
        assert seen[f"fidelity/state_{place}"] == probe["fidelity"]["median"][place]
    for place in range(2):
        names = epoch["movement"]["blocks"][place]
        assert seen[f"growth/block_{place}"] == epoch["growth"][place]
        assert seen[f"movement/block_{place}"] == max(epoch["movement"]["weights"][name] for name in names)
        assert seen[f"gradient_cosine/block_{place}"] == probe["gradient_cosine"][place]
    assert seen["growth/max"] == max(epoch["growth"])
    assert seen["drift"] == probe["drift"]["at_128"]
    assert seen["gamma/deep"] == epoch["gamma"]["deep"]


def test_what_is_not_measured_or_not_finite_is_left_out():
    row = EpochRow(
        epoch=1,
        test_loss=math.nan,
        train_loss=math.inf,
        hidden=Norms(median=[1.0, None, math.inf]),
        growth=[2.0, math.inf],
        cosine=Cosines(mean=[None, 0.5], status=["not measured", "ok"]),
        movement=Movement(
            weights={"a": 0.5, "b": 2.0, "c": None, "d": math.nan},
            blocks=[["a", "b"], ["c"], ["d"]],
            trainable=[True] * 3,
        ),
    )
    assert scalars(row) == {
        "hidden/state_0": 1.0,
        "growth/block_0": 2.0,
        "cosine/state_1": 0.5,
        "movement/block_0": 2.0,
    }
    assert scalars(ProbeRow(epoch=1)) == {}


def test_an_end_row_says_whether_it_finished():
    assert scalars(end(3)) == {"end/finished": 1.0, "end/test_accuracy": 0.5}
    assert scalars(EndRow(status="diverged", epoch=3)) == {"end/finished": 0.0}


numbers = st.floats() | st.integers(-3, 3).map(float)


@given(rows_of(EpochRow, numbers) | rows_of(ProbeRow, numbers) | rows_of(EndRow, numbers))
def test_any_row_gives_finite_floats_under_plain_names(row):
    for name, value in scalars(row).items():
        assert type(value) is float
        assert math.isfinite(value)
        assert name.replace("/", "").replace("_", "").isalnum()


def test_the_settings_are_flat_and_known():
    flat = config(header("dfa-rms+pen0.01"))
    spec = header("dfa-rms+pen0.01").spec
    assert flat["run"] == spec.run_id
    assert flat["method"] == "dfa-rms+pen0.01"
    assert (flat["penalty"], flat["seed"], flat["terminal_ln"]) == (0.01, 42, True)
    assert flat["data.name"] == "synthetic"
    assert flat["data.class_counts"] == "[16, 16]"
    assert flat["optimiser.lr"] == spec.optimiser.lr
    assert "injection" not in flat, "what is not known is left out"
    assert all(isinstance(value, (str, int, float, bool)) for value in flat.values())


def test_the_settings_of_a_real_run_name_its_versions(log):
    flat = config(log.header)
    assert flat["provenance.torch"] == log.header.provenance["torch"]
    assert flat["parameters"] == log.header.parameters
