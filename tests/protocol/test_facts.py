"""What is stated, what is assumed, and what follows for the blocks."""

from protocol import cases

from creditscope.protocol.facts import Assumptions, RunFacts, diverged_at, finite, initial_stream
from creditscope.records import EpochRow
from creditscope.records.measured import Norms


def facts(source=None, assume=None, **fields):
    log = cases.run()
    header = log.header.model_copy(update={"spec": log.spec.model_copy(update=fields), "exact": None, "source": source})
    return RunFacts(header, Assumptions.of(assume or {}))


def test_a_stated_depth_comes_before_an_assumed_one():
    assert facts(assume={"blocks": 9}).blocks == 4
    assert facts(assume={"blocks": 9}, depth=None).blocks == 9
    assert facts(depth=None).blocks == 4
    assert facts().blocks_note == ""


def test_which_blocks_train():
    assert [facts(train_last=2).trains(block) for block in range(4)] == [False, False, True, True]
    assert [facts(train_last=last).trains(0) for last in ("all", None, 0)] == [True, True, False]


def test_bp_is_exact_when_the_log_does_not_say():
    assert facts(rule="bp").exact == (True,) * 5
    assert facts(rule="dfa").exact == (False,) * 5


def test_the_initial_stream_is_that_of_epoch_0_only():
    row = EpochRow(epoch=0, hidden=Norms(median=[1.0, 2.0]))
    assert initial_stream(row) == 2.0
    assert initial_stream(row.model_copy(update={"epoch": 1})) is None
    assert initial_stream(EpochRow(epoch=0)) is None
    assert initial_stream(None) is None


def test_divergence_is_about_norms():
    assert diverged_at(EpochRow(epoch=3, nonfinite={"gain[0]": "nan"})) is None
    assert (
        diverged_at(EpochRow(epoch=3, nonfinite={"reference.median[0]": "nan"}))
        == "reference.median[0] became nan at epoch 3"
    )
    assert (
        diverged_at(EpochRow(epoch=3, hidden=Norms(median=[float("nan")]))) == "hidden.median[0] became nan at epoch 3"
    )


def test_finite():
    assert [finite(x) for x in (1.0, None, float("inf"), float("nan"))] == [1.0, None, None, None]
