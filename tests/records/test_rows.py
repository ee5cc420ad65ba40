"""Rows: round trips through JSON, non-finite values, and values that no row may hold."""

import json
import math

import pytest
from cases.specs import epoch, finite, rows_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow
from creditscope.records.log import _encode
from creditscope.records.measured import Cosines, Fidelity, Norms, Nudge
from creditscope.records.rows import Row, strip_nonfinite

KINDS = (HeaderRow, EpochRow, ProbeRow, EndRow)
ROWS = TypeAdapter(Row)
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_survives_json(kind):
    @SLOW
    @given(rows_of(kind))
    def law(row):
        again = ROWS.validate_python(json.loads(_encode(row)))
        assert type(again) is kind
        assert again == row

    law()


def leaves(value, path=""):
    """Every non-finite number with its dotted path, found by a plain walk over JSON-like data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    elif isinstance(value, float) and math.isnan(value):
        yield path, "nan"
    elif isinstance(value, float) and math.isinf(value):
        yield path, "inf" if value > 0 else "-inf"


@SLOW
@given(
    rows_of(Norms, finite | st.sampled_from([math.nan, math.inf])),
    st.lists(st.floats(), min_size=1, max_size=3),
    st.floats(),
)
def test_non_finite_values_become_null_and_are_named(norms, gain, loss):
    row = EpochRow(epoch=1, hidden=norms, gain=gain, test_loss=loss)
    text = _encode(row)
    again = ROWS.validate_python(json.loads(text, parse_constant=pytest.fail))
    assert again.nonfinite == dict(leaves(row.model_dump()))
    assert not list(leaves(again.model_dump()))
    assert again.gain == [value if math.isfinite(value) else None for value in gain]


def test_where_a_value_was_not_finite_is_written_as_a_path():
    row = EpochRow(epoch=2, test_loss=math.nan, hidden=Norms(median=[1.0, math.inf]), gain=[-math.inf])
    assert json.loads(_encode(row))["nonfinite"] == {
        "test_loss": "nan",
        "hidden.median[1]": "inf",
        "gain[0]": "-inf",
    }


def test_earlier_notes_are_kept():
    row = EpochRow(epoch=2, test_loss=math.nan, nonfinite={"error": "inf"})
    assert json.loads(_encode(row))["nonfinite"] == {"error": "inf", "test_loss": "nan"}


def test_strip_nonfinite_leaves_its_argument_alone():
    row = {"a": [math.nan, 1.0], "b": {"c": "nan", "d": (math.inf,)}}
    clean, found = strip_nonfinite(row)
    assert clean == {"a": [None, 1.0], "b": {"c": "nan", "d": [None]}}
    assert found == {"a[0]": "nan", "b.d[0]": "inf"}
    assert math.isnan(row["a"][0])


def test_what_was_not_measured_is_not_written():
    assert json.loads(_encode(EpochRow(epoch=0))) == {"kind": "epoch", "epoch": 0, "nonfinite": {}}


def message(make):
    with pytest.raises(ValidationError) as caught:
        make()
    return caught.value.errors()[0]["msg"].removeprefix("Value error, ")


@pytest.mark.parametrize("field", ["median", "q05", "q95", "low", "high"])
def test_a_negative_norm_is_refused(field):
    fields = {"median": [1.0, 2.0]} | {field: [1.0, -2.0]}
    assert message(lambda: Norms(**fields)) == f"a norm cannot be negative, got {field}[1] = -2.0"


@pytest.mark.parametrize("value", [1.1, -1.001, math.inf])
def test_a_cosine_beyond_one_is_refused(value):
    wanted = f"a cosine lies in [-1, 1], got mean[1] = {value}"
    assert message(lambda: Cosines(mean=[0.0, value], status=["ok", "ok"])) == wanted


def test_a_cosine_may_round_beyond_one_or_be_nan_in_a_diverged_run():
    assert Cosines(mean=[1 + 1e-12, math.nan, None], status=["ok", "not measured", "zero-vector"])


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
@pytest.mark.parametrize("field", ["test_accuracy", "balanced_accuracy"])
def test_an_accuracy_is_a_fraction(field, value):
    assert "equal to" in message(lambda: EpochRow(epoch=0, **{field: value}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: EpochRow(epoch=-1),
        lambda: ProbeRow(epoch=-1),
        lambda: EpochRow(epoch=0, step=-1),
        lambda: EpochRow(epoch=0, accuracy=0.5),
        lambda: EndRow(status="done", epoch=1),
        lambda: EndRow(status="finished", epoch=1, test_accuracy=34.9),
        lambda: Cosines(mean=[0.1], status=["fine"]),
        lambda: Nudge(credit=[1.0], reference=["x"], random=[0.0], efficiency=[1.0], eta=0.01),
        lambda: Fidelity(median=[1.0]),
    ],
)
def test_wrong_rows_are_refused(make):
    with pytest.raises(ValidationError):
        make()


def test_a_row_needs_a_known_kind():
    with pytest.raises(ValidationError, match="does not match any of the expected tags"):
        ROWS.validate_python({"kind": "note", "epoch": 1})


def test_rows_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        epoch(1).epoch = 2
