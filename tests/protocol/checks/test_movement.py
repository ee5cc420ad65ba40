"""Did every block that should train leave its initial weights?"""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.movement import MovementCheck
from creditscope.records import RuleCard
from creditscope.records.measured import Movement


def judged(log):
    return MovementCheck(1e-4).judge(Cell((log,), "claim"))


def planned(log, train_last):
    spec = log.spec.model_copy(update={"train_last": train_last})
    return replace(log, header=log.header.model_copy(update={"spec": spec}))


def moved(weights, blocks, trainable):
    log = planned(cases.run(depth=len(blocks)), None)
    return cases.edit(log, lambda row: {"movement": Movement(weights=weights, blocks=blocks, trainable=trainable)})


@pytest.mark.parametrize(
    ("weights", "ruling", "value"),
    [
        ({"a": 0.5, "b": 0.0, "c": 0.2, "d": 0.3}, "passes", 0.3),  # one still matrix does not make a still block
        ({"a": 0.5, "b": 0.5, "c": 9e-5, "d": 1e-6}, "fires", 9e-5),
        ({"a": 0.5, "b": 0.5, "c": None, "d": 1e-6}, "undecided", None),
        ({"a": 0.5, "b": 0.5, "c": None, "d": 0.2}, "passes", None),
        ({"a": 0.0, "b": 0.0, "c": None, "d": 0.0}, "fires", 0.0),
    ],
)
def test_every_matrix_of_some_trainable_block_must_be_still(weights, ruling, value):
    outcome = judged(moved(weights, [["a", "b"], ["c", "d"]], [True, True]))
    assert (outcome.ruling, outcome.evidence.value) == (ruling, value)


def test_a_frozen_block_may_be_still():
    assert judged(moved({"a": 0.5, "b": 0.0}, [["a"], ["b"]], [True, False])).ruling == "passes"
    assert judged(moved({"a": 0.5}, [["a"], []], [True, True])).ruling == "passes"


def test_a_block_that_the_plan_trains_is_asked_whatever_the_log_calls_it():
    log = moved({"a": 0.5, "b": 0.0}, [["a"], ["b"]], [True, False])
    assert judged(planned(log, "all")).ruling == "fires"
    assert judged(planned(log, 1)).ruling == "fires"


def test_a_block_that_the_log_leaves_out_is_not_forgotten():
    log = cases.edit(cases.run(), lambda row: {"movement": cases.movement([0.5] * 3)})
    assert (judged(log).ruling, judged(log).reason) == ("not measured", "movement is logged for 3 of 4 blocks")


@pytest.mark.parametrize(("feedback", "ruling"), [({"B": 0.3}, "passes"), ({"B": 0.0}, "fires"), ({}, "not measured")])
def test_feedback_that_is_said_to_learn_must_move(feedback, ruling):
    log = cases.edit(cases.run(), lambda row: {"movement": row.movement.model_copy(update={"feedback": feedback})})
    card = RuleCard(name="kp", family="signal", learns=True)
    assert judged(replace(log, header=log.header.model_copy(update={"rule": card}))).ruling == ruling
    assert judged(log).ruling == "passes"  # where no feedback is said to learn none must move


def test_nothing_to_judge_is_not_measured():
    assert judged(moved({"a": 0.0}, [["a"]], [False])).ruling == "not measured"
    assert judged(cases.edit(cases.run(), lambda row: {"movement": None})).ruling == "not measured"


def test_the_untrained_net_is_not_asked():
    log = cases.run()
    assert judged(log).first_epoch is None
    assert judged(replace(log, epochs=log.epochs[:1])).reason == "the log holds no trained epoch"
