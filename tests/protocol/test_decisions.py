"""What accuracy alone and accuracy with Γ would have said."""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol.cells import Cell
from creditscope.protocol.decisions import balanced_accuracy, chance, decide
from creditscope.records import DataSpec
from creditscope.records.measured import Gamma


def cell(log):
    return Cell((log,), "claim")


def with_spec(log, **fields):
    return replace(log, header=log.header.model_copy(update={"spec": log.spec.model_copy(update=fields)}))


def test_chance_is_the_majority_class_rate():
    log = cases.run()
    assert chance(log.spec) == 0.1
    unequal = with_spec(log, data=DataSpec(name="x", class_counts=(60, 30, 10)))
    assert chance(unequal.spec) == 0.6
    assert chance(with_spec(log, data=DataSpec(name="x"), classes=4).spec) == 0.25
    assert chance(with_spec(log, data=None, classes=None).spec) is None


def test_balanced_accuracy_is_given_where_classes_differ_by_more_than_a_tenth():
    log = cases.run()
    assert balanced_accuracy(cell(log)) is None
    unequal = with_spec(log, data=DataSpec(name="x", class_counts=(60, 30, 10)))
    assert balanced_accuracy(cell(unequal)) == unequal.last.balanced_accuracy
    assert balanced_accuracy(cell(with_spec(log, data=DataSpec(name="x", class_counts=(110, 100))))) is None


@pytest.mark.parametrize(
    ("accuracy", "gamma", "alone", "both"),
    [
        (0.306, 0.08, "looks like learning", "looks like learning"),
        (0.306, -0.01, "looks like learning", "does not"),
        (0.1, 0.5, "does not", "does not"),
        (0.306, None, "looks like learning", "not measured"),
        (0.09, None, "does not", "does not"),
    ],
)
def test_the_two_usual_ways(accuracy, gamma, alone, both):
    shape = replace(cases.COLLAPSED, accuracy=accuracy)
    log = cases.edit(cases.run(shape=shape), lambda row: {"gamma": None if gamma is None else Gamma(published=gamma)})
    decision = decide(cell(log))
    assert (decision.by_accuracy, decision.by_accuracy_and_gamma, decision.gamma) == (alone, both, gamma)


def test_the_acting_cosine_serves_where_the_published_one_is_missing():
    log = cases.edit(cases.run(), lambda row: {"gamma": Gamma(acting=0.3)})
    assert decide(cell(log)).gamma == 0.3


def test_unknown_chance_is_not_measured():
    log = with_spec(cases.run(), data=None, classes=None)
    assert decide(cell(log)).by_accuracy == "not measured"
