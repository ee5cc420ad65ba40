"""Tiers, shares and what a task can tell, against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from protocol.cases import ALIGNED, BP, FROZEN, READOUT, cell, control, edit, opponents

from creditscope.protocol.audit import audit
from creditscope.protocol.margins import Side
from creditscope.protocol.opponents import opponents as opponents_of
from creditscope.protocol.survival import gain_of, survival, tiers
from creditscope.records.measured import Gamma
from creditscope.records.rows import HeaderRow


def side(*accuracy, seeds=(1, 2, 3)):
    return Side(accuracy, seeds)


def test_a_tier_begins_where_the_paired_interval_lies_above_0():
    best, near, worse = side(0.30, 0.31, 0.32), side(0.29, 0.31, 0.31), side(0.20, 0.21, 0.22)
    assert tiers([worse, best, near]) == [2, 1, 1]
    # The same means unpaired spread too far: seed by seed the differences are 1, 1 and 1 pp.
    assert tiers([side(0.1, 0.2, 0.3), side(0.09, 0.19, 0.29)]) == [1, 2]
    assert tiers([side(0.1, 0.2, 0.3), side(0.29, 0.09, 0.19)]) == [1, 1]


def test_tiers_are_held_against_their_best_and_not_against_their_neighbour():
    """a and b tie, b and c tie, a is above c: c begins a tier."""
    a, b, c = side(0.300, 0.302, 0.304), side(0.280, 0.305, 0.300), side(0.28, 0.282, 0.284)
    assert tiers([a, b]) == [1, 1]
    assert tiers([b, c]) == [1, 1]
    assert tiers([a, b, c]) == [1, 1, 2]


def test_one_seed_tells_nothing_apart():
    assert tiers([side(0.5, seeds=(1,)), side(0.1, seeds=(1,))]) == [1, 1]
    assert tiers([]) == []


def test_test_samples_widen_what_seeds_alone_would_tell():
    """Twenty samples, of which the better one has three more right, on every seed alike: seeds do not differ at all."""
    ours, theirs = np.zeros((3, 20)), np.zeros((3, 20))
    ours[:, :13], theirs[:, 2:12] = 1, 1
    sides = [Side(tuple(s.mean(1)), (1, 2, 3), s, 20) for s in (ours, theirs)]
    assert tiers([replace(s, score=None) for s in sides]) == [1, 2]
    assert tiers(sides) == [1, 1]


def suite():
    """Backprop gains 26.3 pp, dfa 9.7 and fa as much; drtp is no better than its twin."""
    dfa = [edit(run, lambda row: {"gamma": Gamma(deep=0.18)}) for run in cell("dfa", ALIGNED)]
    strong = [*dfa, *opponents("dfa"), *cell("fa", ALIGNED), *cell("fa@frozen", FROZEN)]
    weak = [*cell("drtp", replace(ALIGNED, accuracy=0.354)), *cell("drtp@frozen", FROZEN)]
    return [*strong, *weak, *control()]


def test_survivors_of_a_task():
    (contest,) = survival(audit(suite()))
    assert contest.name == "resmlp on cifar10, 5 epochs"
    assert contest.tells
    rows = {row.cell.method: row for row in contest.survivors}
    assert contest.survivors[0].cell.method == "bp"
    assert {method: row.tier for method, row in rows.items()} == {"bp": 1, "dfa": 2, "fa": 2, "drtp": 3}
    gains = {"bp": BP.accuracy - FROZEN.accuracy, "dfa": ALIGNED.accuracy - FROZEN.accuracy}
    assert rows["dfa"].opponent.method == "dfa@frozen"
    assert rows["dfa"].opponent.margin.mean == pytest.approx(gains["dfa"], abs=1e-9)
    assert rows["dfa"].share == pytest.approx(gains["dfa"] / gains["bp"], abs=1e-9)
    assert rows["bp"].share == 1
    assert rows["dfa"].cosine == pytest.approx(0.18)
    assert (rows["bp"].exact, rows["bp"].cosine, rows["dfa"].exact) == (True, None, False)
    assert rows["drtp"].verdict == "walked back"
    assert "depth" in rows["drtp"].fired


def test_a_gain_is_seed_by_seed_and_image_by_image():
    (judged,) = [each for each in audit(suite()).claims if each.cell.method == "dfa"]
    found = opponents_of(judged.cell)[0]
    gain = gain_of(found)
    assert gain.accuracy == pytest.approx(found.margin.per_seed, abs=1e-9)
    assert gain.score.mean(1) == pytest.approx(gain.accuracy, abs=1e-12)
    assert set(np.unique(gain.score)) <= {-1.0, 0.0, 1.0}


def test_a_task_on_which_backprop_gains_nothing_ranks_nobody():
    bp = cell("bp", replace(BP, accuracy=0.36))
    easy = [*bp, *cell("bp@frozen", FROZEN), *cell("dfa", ALIGNED)]
    (contest,) = survival(audit([*easy, *opponents("dfa")]))
    assert not contest.tells
    assert contest.control.mean == pytest.approx(0.36 - FROZEN.accuracy)
    assert {(row.tier, row.share) for row in contest.survivors} == {(None, None)}


def test_without_backprop_no_task_tells():
    (contest,) = survival(audit([*cell("dfa", ALIGNED), *opponents("dfa")]))
    assert (contest.control, contest.tells) == (None, False)


def test_a_claim_without_opponents_is_last_and_has_no_tier():
    (contest,) = survival(
        audit([*cell("usf", ALIGNED), *cell("dfa", ALIGNED), *cell("dfa@frozen", FROZEN), *control()])
    )
    last = contest.survivors[-1]
    assert (last.cell.method, last.opponent, last.tier, last.share) == ("usf", None, None, None)


def test_tasks_are_kept_apart_and_named_apart():
    other = [*control(terminal_ln=False), *cell("dfa", ALIGNED, epochs=4), *cell("dfa@frozen", FROZEN, epochs=4)]
    names = [contest.name for contest in survival(audit([*suite(), *other]))]
    assert names == [
        "resmlp on cifar10, 5 epochs, terminal LN",
        "resmlp on cifar10, 5 epochs, no terminal LN",
        "resmlp on cifar10, 4 epochs",
    ]


def test_controls_with_fixed_feedback_are_no_claims_of_their_own():
    runs = [*cell("kp", ALIGNED), *cell("kp@fixed-feedback", ALIGNED), *cell("kp@frozen", FROZEN), *control()]
    (contest,) = survival(audit([*runs, *cell("bp@readout", READOUT)]))
    assert [row.cell.method for row in contest.survivors] == ["bp", "kp"]


LEAKS = {(None,) * 3: None, (True,) * 3: False, (True, False, None): True}


@pytest.mark.parametrize(("seen", "leaks"), LEAKS.items())
def test_a_locality_leak_is_named(seen, leaks):
    runs = cell("dfa", ALIGNED)
    changed = [
        replace(run, header=HeaderRow(**{**dict(run.header), "locality": value}))
        for run, value in zip(runs, seen, strict=True)
    ]
    (contest,) = survival(audit([*changed, *opponents("dfa"), *control()]))
    (row,) = [row for row in contest.survivors if row.cell.method == "dfa"]
    assert row.leaks is leaks
