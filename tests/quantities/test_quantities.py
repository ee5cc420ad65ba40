"""The table of quantities: complete, without doubles, and each reads its rows."""

import math
from collections import Counter

import pytest
from cases.specs import rows_of
from figures.cases import run
from hypothesis import given
from hypothesis import strategies as st

from creditscope.quantities import QUANTITIES
from creditscope.quantities.per_epoch import (
    ACCURACY,
    COSINE,
    GROWTH_MAX,
    HIDDEN,
    MOVEMENT,
    REFERENCE,
    STILLEST,
    largest,
)
from creditscope.records import EpochRow, ProbeRow, ProbeSpec, RunLog
from creditscope.records.measured import Movement, Norms
from creditscope.records.units import Units

# What a row says about itself rather than measures, and what belongs to another field.
NOT_MEASURED = {
    EpochRow: {"kind", "epoch", "step", "nonfinite", "time_epoch"},
    ProbeRow: {"kind", "epoch", "step", "nonfinite", "time_probe", "not_measured", "null_published", "gradient_null"}
    | {"ladder"},  # judged image by image
}
ROWS = {"epoch": EpochRow, "probe": ProbeRow}
numbers = st.floats(0, 1)


@pytest.mark.parametrize("row", [EpochRow, ProbeRow])
def test_every_field_of_a_row_is_read_by_a_quantity(row):
    fields = {name for name in row.model_fields if name not in NOT_MEASURED[row]}
    read = set()

    class Spy:
        def __getattr__(self, name):
            read.add(name)

    for quantity in QUANTITIES.values():
        if ROWS[quantity.when] is row:
            assert quantity.values(Spy()) is None
    assert read == fields


def test_names_and_fields_are_there_once():
    assert all(name == quantity.name for name, quantity in QUANTITIES.items())
    fields = Counter(quantity.field for quantity in QUANTITIES.values() if quantity.field)
    assert set(fields.values()) == {1}
    assert all(quantity.label and quantity.symbol for quantity in QUANTITIES.values())


@given(rows_of(EpochRow, numbers) | rows_of(ProbeRow, numbers))
def test_any_row_is_read(row):
    for quantity in QUANTITIES.values():
        if quantity.when == row.kind:
            found = quantity.read(row, Units())
            assert found is None or isinstance(found, list)
            assert quantity.place != "one" or found is None or len(found) == 1


def test_only_norms_of_gradients_are_converted():
    assert [name for name, quantity in QUANTITIES.items() if quantity.converted] == ["reference"]
    row = EpochRow(epoch=1, hidden=Norms(median=[1.0, None, 3.0]), reference=Norms(median=[0.5, None, 0.25]))
    units = Units(factor=64.0)
    assert REFERENCE.read(row, units) == [32.0, None, 16.0]
    assert HIDDEN.read(row, units) == [1.0, None, 3.0]
    assert [REFERENCE.at(row, units, state) for state in (-1, 0, 1, 2, 3, -3, -4)] == [16, 32, None, 16, None, 32, None]
    assert REFERENCE.read(EpochRow(epoch=1), units) is None
    assert REFERENCE.at(EpochRow(epoch=1), units) is None


def test_a_run_is_read_in_its_own_units():
    log = run("dfa", epochs=3, probe=ProbeSpec(reduction="mean", batch=8))
    raw = [row.reference.median for row in log.epochs]
    assert REFERENCE.series(log) == [[8 * value for value in values] for values in raw]
    assert REFERENCE.last(log, 1) == 8 * raw[-1][1]
    assert ACCURACY.last(log) == log.epochs[-1].test_accuracy
    assert ACCURACY.last(RunLog("empty", log.header)) is None
    assert COSINE.status(log.epochs[-1]) == log.epochs[-1].cosine.status
    assert COSINE.status(EpochRow(epoch=0)) == ()
    assert COSINE.null(log.probes[-1]) == log.probes[-1].null
    assert REFERENCE.null(log.probes[-1]) is None


def test_symbols_and_headings():
    assert REFERENCE.symbol_at("L") == "‖g_L‖"
    assert HIDDEN.symbol_at(2) == "‖h_2‖"
    assert HIDDEN.heading == "‖h_l‖"
    assert REFERENCE.heading == "‖g_l‖ (per sample, sum-reduced)"


@pytest.mark.parametrize(
    ("values", "found"),
    [((), None), ((None,), None), ((1.0, None, 3.0), 3.0), ((1.0, math.inf), None), ((math.nan, 2.0), None)],
)
def test_the_largest_of_what_was_measured(values, found):
    assert largest(values) == found
    assert GROWTH_MAX.read(EpochRow(epoch=0, growth=list(values)), Units()) == (None if found is None else [found])


def test_a_block_moved_as_far_as_its_matrix_that_moved_most():
    row = EpochRow(
        epoch=1,
        movement=Movement(
            weights={"a": 0.5, "b": 2.0, "c": 0.1, "d": None},
            blocks=[["a", "b"], ["c"], ["d"]],
            trainable=[True, False, False],
        ),
    )
    assert MOVEMENT.read(row, Units()) == [2.0, 0.1, None]
    assert STILLEST.read(row, Units()) == [2.0], "blocks that do not train do not count"
    open_row = row.model_copy(update={"movement": row.movement.model_copy(update={"trainable": [True] * 3})})
    assert STILLEST.read(open_row, Units()) is None, "a block that was not measured may be the stillest"
