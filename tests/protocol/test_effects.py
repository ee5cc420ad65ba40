"""Effects of a change: against plain t-tests, and on recipes whose causes are known."""

import dataclasses
import math

import numpy as np
import pytest
from protocol import cases
from scipy import stats

from creditscope.protocol import explanation
from creditscope.protocol.comparison import compare
from creditscope.protocol.effects import MEASURES, Effect, Measure, Trial, corrected, effect, p_value
from creditscope.protocol.explanation import Explanation, effects_of, interactions_of
from creditscope.protocol.margins import Side, margin
from creditscope.records import EndRow

ACCURACY, GROWTH, GAIN, COSINE, DEPTH = MEASURES


def grown(growths, method="dfa", **fields):
    """One run a seed, whose first block grows as given."""
    shapes = [dataclasses.replace(cases.ALIGNED, growth=(g, 1.1, 1.1, 1.05)) for g in growths]
    return tuple(cases.run(method, seed, shape, **fields) for seed, shape in zip(cases.SEEDS, shapes, strict=True))


# --- one effect -----------------------------------------------------------------------------------------------------


def test_a_ratio_is_a_paired_t_test_of_logarithms():
    before, after = [900.0, 1300.0, 700.0], [6.0, 11.0, 5.5]
    found = effect(GROWTH, Trial(grown(after)), Trial(grown(before)))
    difference = np.log(after) - np.log(before)
    low, high = stats.t.interval(0.95, 2, difference.mean(), difference.std(ddof=1) / math.sqrt(3))
    assert found.margin.mean == pytest.approx(difference.mean())
    assert (found.margin.low(), found.margin.high()) == (pytest.approx(low), pytest.approx(high))
    assert found.p == pytest.approx(stats.ttest_rel(np.log(after), np.log(before)).pvalue)
    assert math.exp(found.base) == pytest.approx(stats.gmean(before))
    ends = ", ".join(f"{math.exp(value):.3g}×" for value in (low, high))
    assert found.interval == f"{math.exp(difference.mean()):.3g}× [{ends}]"


def test_the_p_of_an_accuracy_is_the_level_at_which_its_interval_reaches_zero():
    found = effect(
        ACCURACY,
        Trial(tuple(cases.cell("dfa", cases.ALIGNED, spread=0.01))),
        Trial(tuple(cases.cell("dfa-rms", dataclasses.replace(cases.ALIGNED, accuracy=0.437), spread=0.004))),
    )
    assert found.margin.image_variance > 0
    assert found.margin.half(found.p) == pytest.approx(abs(found.margin.mean), rel=1e-6)
    assert found.margin.mean == pytest.approx(0.013)


def test_the_margin_over_the_twin_is_a_difference_of_differences():
    ours, twin = cases.cell("dfa", cases.ALIGNED, spread=0.01), cases.cell("dfa@frozen", cases.FROZEN, spread=0.003)
    other = cases.cell("dfa-rms", cases.COLLAPSED, spread=0.02)
    other_twin = cases.cell("dfa-rms@frozen", cases.FROZEN, spread=0.001)
    found = effect(DEPTH, Trial(tuple(ours), tuple(twin)), Trial(tuple(other), tuple(other_twin)))
    last = [np.array([run.end.test_accuracy for run in runs]) for runs in (ours, twin, other, other_twin)]
    expected = (last[0] - last[1]) - (last[2] - last[3])
    assert found.margin.per_seed == pytest.approx(tuple(expected), abs=1e-9)
    assert effect(DEPTH, Trial(tuple(ours)), Trial(tuple(other), tuple(other_twin))) is None


def test_one_seed_has_no_interval_and_zero_spread_is_a_point():
    alone = effect(GROWTH, Trial(grown([4.0, 4.0, 4.0])[:1]), Trial(grown([2.0, 2.0, 2.0])[:1]))
    assert (alone.p, alone.word) == (None, "open")
    assert alone.interval == "2× (one seed: no interval)"
    point = effect(GROWTH, Trial(grown([4.0, 4.0, 4.0])), Trial(grown([2.0, 2.0, 2.0])))
    assert (point.p, point.margin.low()) == (0.0, pytest.approx(math.log(2)))


def test_the_first_epoch_from_which_on_two_differ():
    base, changed = grown([2.0, 2.1, 1.9]), grown([2.0, 2.1, 1.9])
    late = tuple(
        cases.edit(run, lambda row: {"growth": [30.0 + row.epoch, 1, 1, 1]} if row.epoch >= 3 else {})
        for run in changed
    )
    assert effect(GROWTH, Trial(late), Trial(base)).parted == 3
    assert effect(GROWTH, Trial(changed), Trial(base)).parted is None


def test_a_diverged_run_is_counted_and_has_no_value():
    runs = grown([2.0, 2.1, 1.9])
    broken = dataclasses.replace(runs[0], end=EndRow(status="diverged", epoch=5, reason="hidden became non-finite"))
    trial = Trial((broken, *runs[1:]))
    assert trial.diverged == 1
    assert GROWTH.side(trial).seeds == cases.SEEDS[1:]


def test_corrected_is_benjamini_and_hochbergs_procedure():
    ps = [0.001, 0.013, 0.04, 0.2, 0.9]
    found = corrected([Effect(GROWTH, 0, 0, margin(Side((1.0, 2.0)), 0.0), p) for p in (*ps, None)])
    by_hand = [min(p * len(ps) / (rank + 1) for rank, p in list(enumerate(ps))[at:]) for at in range(len(ps))]
    assert [each.q for each in found] == [*(pytest.approx(q) for q in by_hand), None]


def test_p_of_nothing_is_one():
    assert p_value(margin(Side((0.2, -0.2, 0.0), (1, 2, 3), variance=0.0), 0.0)) == 1.0


# --- recipes whose causes are known ---------------------------------------------------------------------------------

SWITCHES = ("a", "b", "c", "d", "e", "f", "g", "h")
WIDE = Measure("score", "score", "", 0.1, lambda trial: trial.runs[0])


def study(rng, truth, seeds=3, sd=0.1):
    """One study: each recipe's score is what the truth says of its switches, with noise; seeds shift all alike."""
    shift = rng.normal(0, 1, seeds)

    def trial(*flipped):
        score = truth(set(flipped)) + shift + rng.normal(0, sd, seeds)
        return Trial((Side(tuple(score), tuple(range(seeds)), variance=0.0),))

    base = trial()
    alone = {name: trial(name) for name in SWITCHES}
    both = trial("a", "b")
    changes = effects_of({name: (name, found) for name, found in alone.items()}, base)
    pairs = interactions_of({("a", "b"): ("a and b", both)}, alone, base)
    found = Explanation("made-up", base, changes, pairs)
    return {change.name for change in found.causes(WIDE)}, [p for p in pairs if p.on(WIDE).word == "matters"]


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(explanation, "MEASURES", (WIDE,))


@pytest.mark.parametrize(
    ("truth", "named", "interact"),
    [
        (lambda on: 8.0 * ("a" in on), {"a"}, False),
        (lambda on: 8.0 * ("a" in on) - 6.0 * ("b" in on), {"a", "b"}, False),
        # It fails only where both are there: taking away either cures it, taking away both does no more.
        (lambda on: 0.0 if on & {"a", "b"} else -8.0, {"a", "b"}, True),
    ],
    ids=["one", "two that add up", "only together"],
)
def test_exactly_the_causes_are_named(made_up, truth, named, interact):
    rng = np.random.default_rng(5)
    studies = [study(rng, truth) for _ in range(100)]
    complete = [causes >= named for causes, _ in studies]
    false = [len(causes - named) / max(1, len(causes)) for causes, _ in studies]
    assert np.mean(complete) >= 0.9
    assert np.mean(false) <= 0.05
    together = np.mean([bool(pairs) for _, pairs in studies])
    assert together >= 0.9 if interact else together <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 100)


@pytest.mark.parametrize("seeds", [3, 5])
def test_where_nothing_matters_nothing_is_named(made_up, seeds):
    """The share of studies that name anything at all is what is promised, 5 %, within its Monte-Carlo error."""
    rng = np.random.default_rng(seeds)
    wrong = np.mean([bool(study(rng, lambda on: 0.0, seeds, sd=0.5)[0]) for _ in range(200)])
    assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_an_answer_in_words():
    base = Trial(grown([900.0, 1000.0, 1100.0]))
    changes = effects_of(
        {
            "normalisation": ("removing the credit normalisation", Trial(grown([5.0, 5.6, 6.1]))),
            "weight-decay": ("removing the weight decay", Trial(grown([901.0, 1000.0, 1099.0]))),
        },
        base,
    )
    found = Explanation("dfa-rms", base, changes, refused=(("depth", "not ours to set"),))
    line = next(line for line in found.answer if "alone brings" in line)
    assert line.startswith("largest growth of a block 997: removing the credit normalisation alone brings 5.55 (effect")
    assert "largest growth of a block 997: does not matter: weight-decay" in found.answer
    assert "not a switch of this recipe: depth: not ours to set" in found.to_text(100)
    assert found.to_dict()["changes"][0]["effects"]["growth"]["outcome"] == "matters"
    assert "removing the weight decay" in found.to_markdown()
    assert r"\toprule" in found.to_latex()


# --- two sets of runs -----------------------------------------------------------------------------------------------


def test_a_comparison_says_what_differs_in_the_recipe_and_what_in_the_numbers():
    ours = [*cases.cell("dfa", cases.ALIGNED), *cases.cell("dfa@frozen", cases.FROZEN)]
    theirs = [*cases.cell("dfa-rms", cases.COLLAPSED, batch=64), *cases.cell("dfa-rms@frozen", cases.FROZEN, batch=64)]
    found = compare(ours, theirs)
    assert [cell.labels for cell in found.cells] == [("dfa", "dfa-rms")]
    assert found.cells[0].recipe == (("credit_norm", "none", "rms"), ("batch", "128", "64"))
    plain = found.to_dict()["cells"][0]
    assert plain["differences"]["growth"]["mean"] == pytest.approx(math.log(5600 / 1.3))
    assert plain["differences"]["depth margin"]["mean"] == pytest.approx((0.306 - 0.353) - (0.45 - 0.353))
    assert "credit_norm" in found.to_text(100)
    assert r"| credit\_norm | none | rms |" in found.to_markdown()
    assert r"\toprule" in found.to_latex()


def test_several_methods_are_compared_name_by_name():
    ours = [*cases.cell("dfa", cases.ALIGNED), *cases.cell("bp", cases.BP)]
    theirs = [*cases.cell("dfa", cases.COLLAPSED, batch=64), *cases.cell("fa", cases.ALIGNED, batch=64)]
    found = compare(ours, theirs)
    assert [cell.labels[0] for cell in found.cells] == ["dfa"]
    assert found.alone == ("only in A: bp", "only in B: fa")
