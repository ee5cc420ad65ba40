"""Attempts to win or lose by what a run is compared with: each must end as the records bear out, and say why."""

from dataclasses import replace

import numpy as np
import pytest
from protocol import cases
from protocol.test_false_verdicts import ending, outcome, study, with_seed
from protocol.test_families import without_credit

from creditscope.protocol import audit
from creditscope.records import OptimiserSpec, ProbeSpec, Tuning
from creditscope.records.images import pack_bits
from creditscope.records.measured import Fidelity, Norms
from creditscope.records.provenance import OFF
from creditscope.records.rule_card import RuleCard

FIVE = (1, 2, 3, 4, 5)
# Five seeds that learn well on average, two of them far worse.
UNEVEN = dict(zip(FIVE, (0.55, 0.551, 0.552, 0.40, 0.401), strict=True))


def verdict(logs, method="dfa"):
    (claim,) = [cell for cell in audit(logs).claims if cell.cell.method == method]
    return str(claim.verdict.kind)


def with_spec(log, **fields):
    return replace(log, header=log.header.model_copy(update={"spec": log.spec.model_copy(update=fields)}))


def of_method(logs, method, change):
    return [change(log) if log.spec.method == method else log for log in logs]


def aligned():
    return study(cases.cell("dfa", cases.ALIGNED))


def learning(log, learns=True):
    """The log of a rule whose feedback learns, moved, and was told from rotations of the credit."""
    turned = [
        row.model_copy(update={"null": row.null.model_copy(update={"kind": "rotated credit"})}) for row in log.probes
    ]
    card = RuleCard(name="dfa", family="signal", learns=True) if learns else None
    moved = cases.edit(log, lambda row: {"movement": row.movement.model_copy(update={"feedback": {"B": 0.1}})})
    return replace(moved, probes=tuple(turned), header=log.header.model_copy(update={"rule": card}))


def opponents_of(method, seeds):
    frozen = cases.cell(f"{method}@frozen", cases.FROZEN, seeds)
    controls = [*cases.cell("bp", cases.BP, seeds), *cases.cell("bp@frozen", cases.FROZEN, seeds)]
    return [*frozen, *controls, *cases.cell("bp@readout", cases.READOUT, seeds)]


def test_a_gradient_that_was_probed_without_tf32_is_judged_alike_from_files_and_from_memory(tmp_path):
    def unfaithful(log):
        low = cases.edit(log, fidelity=Fidelity(median=[0.99] * 5, dtype="float32"))
        return replace(low, header=log.header.model_copy(update={"provenance": {OFF: "TF32", "device": "cuda"}}))

    logs = of_method(aligned(), "dfa", unfaithful)
    for log in logs:
        (tmp_path / log.name).write_text("".join(row.model_dump_json() + "\n" for row in log.rows()))
    for found in (audit(logs), audit(tmp_path), audit(tmp_path, keep_rows=False)):
        (claim,) = [cell for cell in found.claims if cell.cell.method == "dfa"]
        fidelity = next(each for each in claim.outcomes if each.name == "fidelity")
        assert (str(claim.verdict.kind), str(fidelity.ruling)) == ("walked back", "fires")
        assert "φ 0.99 < 0.9999 on 3 of 3 seeds" in fidelity.reason


def test_a_twin_at_a_rate_that_its_tuning_did_not_choose_is_no_twin():
    """One rate was best on held-out samples; the twin trains at the worst one and says that it was tuned."""
    tuning = Tuning(rates=(1e-2, 1e-3, 1e-5), held_out=100, seed=1, epochs=5, accuracy=(0.3, 0.5, 0.1))

    def at(rate):
        return lambda log: with_spec(log, tuned=tuning, optimiser=OptimiserSpec(lr=rate))

    weak = [at(1e-5)(log) for log in cases.cell("dfa@frozen", replace(cases.FROZEN, accuracy=0.2))]
    rest = [at(1e-3)(log) for log in aligned() if log.spec.method != "dfa@frozen"]
    assert verdict([*rest, *weak]) == "incomplete"
    assert "the nearest differs in optimiser" in outcome([*rest, *weak], "depth").reason
    assert verdict([*rest, *(at(1e-3)(log) for log in cases.cell("dfa@frozen", cases.FROZEN))]) == "trustworthy"


def diverged(log):
    row = log.epochs[-1]
    lost = {"hidden": Norms(median=[9.0, *[None] * 4]), "nonfinite": {"hidden.median.1": "nan"}}
    return replace(log, epochs=(*log.epochs[:-1], row.model_copy(update=lost)))


def shortened(log):
    """Two epochs of five, called finished."""
    row = log.epochs[2]
    rng = np.random.default_rng(log.spec.seed)
    end = {"epoch": 2, "test_accuracy": row.test_accuracy, "correct": cases.bits(row.test_accuracy, rng)}
    probes = tuple(probe for probe in log.probes if probe.epoch <= 2)
    return ending(replace(log, epochs=log.epochs[:3], probes=probes), **end)


def thawed(log):
    return cases.edit(log, lambda row: {"movement": cases.movement([0.5] * 4)})


@pytest.mark.parametrize("broken", [diverged, shortened, thawed])
def test_a_twin_that_broke_down_is_no_opponent(broken):
    logs = of_method(aligned(), "dfa@frozen", broken)
    assert verdict(aligned()) == "trustworthy"
    assert verdict(logs) == "incomplete"
    assert (
        "no frozen twin: the matching frozen runs are unfinished, diverged or not frozen"
        in outcome(logs, "depth").reason
    )


def test_a_run_of_fewer_epochs_than_planned_is_not_compared_with_a_whole_one():
    found = outcome(of_method(aligned(), "dfa", shortened), "depth")
    assert (str(found.ruling), found.reason[:25]) == ("not measured", "not compared: unfinished:")


def test_every_run_is_asked_whether_its_feedback_learns():
    claim = cases.cell("dfa", cases.ALIGNED)
    logs = study([learning(claim[0], learns=False), *map(learning, claim[1:])])
    assert verdict(logs) == "incomplete"
    assert outcome(logs, "depth").reason.startswith("its feedback learns, and no @fixed-feedback run shows")


@pytest.mark.parametrize(
    ("seeds", "ruling", "said"),
    [((1, 2, 3), "undecided", "lacks seeds 4 and 5"), (FIVE, "undecided", "+4.08 pp"), ((), "undecided", "no @fixed")],
)
def test_a_control_on_the_best_seeds_does_not_show_that_moving_the_feedback_helps(seeds, ruling, said):
    claim = [cases.run("dfa", seed, replace(cases.ALIGNED, accuracy=UNEVEN[seed])) for seed in FIVE]
    still = cases.cell("dfa@fixed-feedback", replace(cases.ALIGNED, accuracy=0.45), seeds, 0.0) if seeds else []
    logs = [*map(learning, [*claim, *still, *cases.cell("dfa@frozen", cases.FROZEN, FIVE)])]
    found = outcome([*logs, *(log for log in opponents_of("dfa", FIVE) if log.spec.rule == "bp")], "depth")
    assert str(found.ruling) == ruling
    assert said in found.reason.partition("; margin over dfa@frozen")[0]
    assert found.settles == "train the @fixed-feedback control with the same recipe and seeds, or more seeds of it"


def test_anchors_alone_on_the_best_seeds_do_not_show_that_the_rule_helps():
    claim = [cases.run("dfa+anchor2", seed, replace(cases.ALIGNED, accuracy=UNEVEN[seed])) for seed in FIVE]
    alone = cases.cell("anchor2", replace(cases.ALIGNED, accuracy=0.5), (1, 2, 3))
    found = outcome([*claim, *alone, *opponents_of("dfa+anchor2", FIVE)], "depth", "dfa+anchor2")
    assert str(found.ruling) == "undecided"
    assert found.reason.startswith("the rule is not shown to help: anchor2 lacks seeds 4 and 5;")


def test_a_twin_that_was_probed_twice_is_one_twin():
    logs = aligned()
    again = [with_spec(log, probe=ProbeSpec(n=512)) for log in logs if log.spec.method != "dfa"]
    once, twice = outcome(logs, "depth"), outcome([*logs, *again], "depth")
    assert twice.reason == once.reason
    assert "(3 seeds)" in twice.reason


def test_one_training_of_an_update_rule_under_three_seeds_is_one_seed():
    """Its log holds no reference gradient: states and answers tell it just as well."""
    log = without_credit(cases.run("pepita", 1, cases.Shape(accuracy=0.5)), "update")
    bare = cases.edit(log, lambda row: {"reference": None, "gain": None})
    logs = [*(with_seed(bare, seed) for seed in (1, 2, 3)), *cases.opponents("pepita"), *cases.control()]
    assert verdict(logs, "pepita") == "incomplete"
    assert [skipped.file for skipped in audit(logs).skipped] == ["2.jsonl", "3.jsonl"]


def test_one_seed_of_backprop_does_not_excuse_harm():
    harmed = cases.cell("dfa", replace(cases.ALIGNED, accuracy=0.30))
    logs = [*harmed, *cases.cell("dfa@frozen", cases.FROZEN), *cases.cell("bp@readout", cases.READOUT)]
    one = [cases.run("bp", 42, cases.BP), cases.run("bp@frozen", 42, cases.FROZEN)]
    for given in (logs, [*logs, *one]):
        found = outcome(given, "depth")
        assert str(found.ruling) == "fires"
        assert found.reason.startswith("margin over dfa@frozen -5.30 pp")


def test_a_control_without_its_number_of_images_condemns_nobody():
    logs = study(cases.cell("dfa", replace(cases.ALIGNED, accuracy=0.36)))
    blind = [ending(log, n_test=None, correct=None) if log.spec.method in ("bp", "bp@frozen") else log for log in logs]
    assert str(outcome(logs, "depth").ruling) == "fires"
    found = outcome(blind, "depth")
    assert str(found.ruling) == "undecided"
    assert found.reason.startswith("no positive control (bp and bp@frozen) whose number of test images is logged;")
    assert found.settles == "log the number of test images (n_test) or, better, the result on each of them"


def test_a_control_under_another_schedule_is_no_control():
    """Of runs from elsewhere a schedule may be known in words alone."""

    def said(log, schedule):
        return with_spec(
            log, origin="watch", schedule=None, recipe={"schedule": schedule, "optimiser": log.spec.method}
        )

    logs = [*cases.cell("dfa", replace(cases.ALIGNED, accuracy=0.36)), *cases.opponents()]
    for schedule, ruling in (("steps", "fires"), ("warm-up", "undecided")):
        twins = [with_spec(said(log, "steps"), recipe={"schedule": "steps", "optimiser": "sgd"}) for log in logs]
        found = outcome([*twins, *(said(log, schedule) for log in cases.control())], "depth")
        assert str(found.ruling) == ruling
        assert ("no positive control" in found.reason) == (schedule == "warm-up")


def test_a_bare_number_beside_a_twin_is_said_to_be_unused():
    (claim,) = [cell for cell in audit(aligned(), baseline=0.6).claims if cell.cell.method == "dfa"]
    assert str(claim.verdict.kind) == "trustworthy"
    depth = next(found for found in claim.outcomes if found.name == "depth")
    assert "the bare number 0.6 is not used: a twin is among the logs" in depth.reason


def unequal(log, rates):
    """Classes of 7,100, 1,450 and 1,450 images, of which these shares are right."""
    counts = (7100, 1450, 1450)
    right = np.concatenate([np.arange(n) < round(rate * n) for n, rate in zip(counts, rates, strict=True)])
    plain, balanced = (
        float(right.mean()),
        float(np.mean([round(r * n) / n for n, r in zip(counts, rates, strict=True)])),
    )
    log = with_spec(log, data=log.spec.data.model_copy(update={"class_counts": counts}), classes=3)
    row = log.epochs[-1].model_copy(update={"test_accuracy": plain, "balanced_accuracy": balanced})
    labels = np.repeat(np.arange(3), counts).astype(">u2").tobytes().hex()
    end = {"test_accuracy": plain, "correct": pack_bits(right), "labels": labels}
    return ending(replace(log, epochs=(*log.epochs[:-1], row)), **end)


def test_words_beside_a_balanced_margin_are_of_balanced_accuracy():
    """A shallow net that names the large class is more accurate, and worse: .50 balanced against .63."""
    rates = {"dfa": (0.70, 0.60, 0.60), "dfa@frozen": (0.95, 0.2, 0.2), "bp": (0.8, 0.7, 0.7)}
    shapes = {"dfa": cases.ALIGNED, "bp": cases.BP}
    rates |= {"bp@frozen": (0.96, 0.3, 0.24), "bp@readout": (0.99, 0.05, 0.05)}
    made = [
        unequal(cases.run(name, seed, shapes.get(name, cases.FROZEN)), [r + 0.001 * at for r in rate])
        for name, rate in rates.items()
        for at, seed in enumerate(cases.SEEDS)
    ]
    found = outcome(made, "depth")
    assert str(found.ruling) == "passes"
    assert "accuracy is balanced over the classes, whose sizes differ" in found.reason
    assert "not better than a shallow net" not in found.reason
    assert "bp@frozen reaches 0.5" in found.reason
    (claim,) = [cell for cell in audit(made).claims if cell.cell.method == "dfa"]
    for row in found.check.extra([("dfa", claim.cell, found)]).rows:
        assert 100 * (float(row[1]) - float(row[3])) == pytest.approx(float(row[4]), abs=0.02)


def test_a_null_that_is_taken_as_normal_is_named():
    bare = [cases.edit(log, null=log.probes[-1].null.model_copy(update={"draws": None})) for log in aligned()[:3]]
    found = outcome(study(bare), "direction")
    assert (str(found.ruling), str(found.evidence.grade)) == ("passes", "proxy")
    assert "the redraws are not logged: their null is taken as normal" in found.reason


def test_a_plan_does_not_know_how_rates_were_tuned():
    tuning = Tuning(rates=(1e-3,), held_out=100, seed=1, epochs=5, accuracy=(0.5,))
    logs = [with_spec(log, tuned=tuning) for log in aligned()]
    assert audit(logs).against([log.spec for log in aligned()]).plan.missing == ()


def test_a_twin_on_the_worst_seeds_alone_condemns_nobody():
    """Of five seeds the two that end low have a twin above them; over all five the claim is the better one."""
    accuracy = dict(zip(FIVE, (0.45, 0.451, 0.449, 0.30, 0.301), strict=True))
    claim = [cases.run("dfa", seed, replace(cases.ALIGNED, accuracy=accuracy[seed])) for seed in FIVE]
    rest = [*cases.control(), *cases.cell("bp@readout", cases.READOUT, FIVE)]
    found = outcome([*claim, *cases.cell("dfa@frozen", cases.FROZEN, (4, 5), 0.0005), *rest], "depth")
    assert str(found.ruling) == "undecided"
    assert found.reason.startswith("dfa@frozen lacks seeds 1, 2 and 3, and over all seeds the margin is open;")
    assert found.settles == "train dfa@frozen on seeds 1, 2 and 3 too"
    low = [cases.run("dfa", seed, replace(cases.ALIGNED, accuracy=0.30 + 0.001 * seed)) for seed in FIVE]
    found = outcome([*low, *cases.cell("dfa@frozen", cases.FROZEN, (4, 5), 0.0005), *rest], "depth")
    assert str(found.ruling) == "fires"


@pytest.mark.parametrize("family", ["update", "objective"])
def test_credit_and_updates_are_not_pooled(family):
    mixed = [without_credit(log, family, local=True) if log.spec.seed == 42 else log for log in aligned()[:3]]
    found = outcome(study(mixed), "direction")
    assert (str(found.ruling), found.reason) == ("not measured", "its logs do not say alike what the rule delivers")
    assert verdict(study(mixed)) == "incomplete"


def test_a_flat_ladder_without_backprop_asks_for_backprop():
    flat = [
        without_credit(log, "objective", gain=0, local=True) for log in cases.cell("local", cases.Shape(accuracy=0.5))
    ]
    found = outcome([*flat, *cases.opponents("local")], "ladder", "local")
    assert str(found.ruling) == "undecided"
    assert found.settles.startswith("train bp with the same data, model and schedule, 3 seeds or more")


def test_a_log_whose_end_contradicts_its_last_epoch_is_not_believed():
    logs = of_method(aligned(), "dfa", lambda log: ending(log, correct=None, test_accuracy=0.3))
    assert verdict(logs) == "incomplete"
    for check in ("learning", "depth"):
        assert outcome(logs, check).reason == f"{logs[0].name}: its last epoch says 0.4480, its end 0.3000"


@pytest.mark.parametrize(
    ("check", "row", "probe"),
    [
        ("scale", {"growth": None, "hidden": Norms(median=[9.0, 10.0, 11.0])}, {}),
        ("fidelity", {}, {"fidelity": Fidelity(median=[1.0, 1.0], dtype="float32")}),
    ],
)
def test_states_that_a_log_leaves_out_do_not_pass(check, row, probe):
    logs = of_method(aligned(), "dfa", lambda log: cases.edit(log, lambda _: row, **probe))
    assert str(outcome(logs, check).ruling) in ("undecided", "not measured")
    assert verdict(logs) == "incomplete"


def test_a_probe_of_an_epoch_that_is_not_logged_decides_nothing():
    def later(log):
        null = cases.null([0.5] * 5, np.random.default_rng(log.spec.seed).normal(0, 0.02, (5, 999)))
        return replace(log, probes=(*log.probes, log.probes[-1].model_copy(update={"epoch": 99, "null": null})))

    found = outcome(study([later(log) for log in cases.cell("dfa", cases.COLLAPSED)]), "direction")
    assert str(found.ruling) == "undecided"
    assert "probed at epoch 99, not at the last epoch 5" in found.reason


def test_a_run_whose_last_epochs_are_not_logged_is_not_compared():
    """Its end row knows better than its last epoch: at epoch 2 it was 11 pp below a twin that is at epoch 5."""

    def cut(log):
        return ending(replace(log, epochs=log.epochs[:3], probes=log.probes[:3]), correct=None)

    logs = of_method(aligned(), "dfa", cut)
    found = outcome(logs, "depth")
    assert (str(found.ruling), found.reason[:25]) == ("not measured", "not compared: unfinished:")
    assert verdict(logs) == "incomplete"


def test_a_little_above_chance_is_not_called_no_better_than_a_constant():
    found = outcome(study(cases.cell("dfa", replace(cases.ALIGNED, accuracy=0.105), spread=0.0002)), "learning")
    assert str(found.ruling) == "fires"
    assert found.evidence.low > 0
    assert "below 1 pp: above chance, by less than that (below it on 3 of 3 seeds)" in found.reason


def test_of_twins_that_were_tuned_the_one_best_at_validation_counts():
    """At another rate, better on the held-out samples, the twin is 8.7 pp stronger."""

    def tuned(log, lr, accuracy):
        tuning = Tuning(rates=(1e-2, 1e-3), held_out=100, seed=1, epochs=5, accuracy=accuracy)
        return with_spec(log, tuned=tuning, optimiser=OptimiserSpec(lr=lr))

    logs = [tuned(log, 1e-3, (0.3, 0.5)) for log in aligned()]
    strong = cases.cell("dfa@frozen", replace(cases.FROZEN, accuracy=0.44))
    for accuracy, margin in (((0.6, 0.5), 1.0), ((0.45, 0.4), 9.7)):
        found = outcome([*logs, *(tuned(log, 1e-2, accuracy) for log in strong)], "depth")
        assert found.baseline["opponents"][0]["margin"] == pytest.approx(margin)


def test_a_seed_that_says_nothing_of_a_block_is_not_called_a_seed_that_disagrees():
    """One of three logs calls the deep blocks exact, so that it says nothing of the others' credit."""
    exact = replace(cases.ALIGNED, exact=(False, False, True, True, True), cosine=(0.4, 0.4, 1.0, 1.0, 1.0))
    claim = cases.cell("dfa", cases.ALIGNED)
    claim[0] = cases.edit(claim[0], lambda row: {"cosine": cases.cosines(exact)})
    found = outcome(study(claim), "direction")
    assert str(found.ruling) == "undecided"
    assert found.reason.startswith("not every seed tells (2 of 2 seeds above 0.05 in every one)")
    assert f"not probed: {claim[0].name}" in found.reason


def test_an_interval_that_leaves_the_margin_open_is_the_one_that_is_shown():
    """Two opponents: below both at 95 %, open at the level of one among two."""
    ours = cases.cell("dfa", replace(cases.ALIGNED, accuracy=0.345), spread=0.0114)
    (claim,) = [c for c in audit([*ours, *cases.opponents("dfa"), *cases.control()]).claims if c.cell.method == "dfa"]
    depth = next(each for each in claim.outcomes if each.name == "depth")
    assert str(depth.ruling) == "undecided"
    assert "97.5 % interval" in depth.reason
    assert "which leaves 2 pp open" in depth.reason
