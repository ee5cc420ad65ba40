"""What rules without credit at the states are asked, and what beats them: anchors alone, deep supervision."""

from dataclasses import replace

import numpy as np
import pytest
from protocol import cases
from protocol.cases import SEEDS, L

from creditscope.protocol.audit import audit
from creditscope.protocol.facts import RunFacts
from creditscope.protocol.pooling import NullDraws, pool
from creditscope.records import RuleCard
from creditscope.records.images import pack_bits
from creditscope.records.measured import Ladder

N = 2048


def without_credit(log, family, update=0.3, spread=0.02, gain=0.02, local=None, learns=False):
    """The log of a rule of another family: no cosine at the states, the update's with its shuffles."""
    card = RuleCard(name=log.spec.rule, family=family, learns=learns)
    rng = np.random.default_rng(log.spec.seed)
    cosines = (update + rng.normal(0, 0.02, L)).tolist()
    null = cases.null(cosines, rng.normal(0, spread, (L, 199))).model_copy(update={"kind": "shuffled labels"})
    right = np.random.default_rng(1).random(N) < 0.5
    top = right.copy()
    top[np.flatnonzero(~right)[: round(gain * N)]] = True
    rungs = Ladder(state=L - 2, lower=pack_bits(right), top=pack_bits(top), n=N)
    probes = {
        "null": None,
        "null_published": None,
        "gradient_cosine": cosines,
        "gradient_null": null,
        "ladder": rungs,
    }
    bare = cases.edit(log, lambda row: {"cosine": None, "cosine_published": None, "gamma": None}, **probes)
    return replace(bare, header=log.header.model_copy(update={"rule": card, "locality": local, "exact": None}))


def claim(method, family, accuracy=0.5, **changes):
    return [without_credit(run, family, **changes) for run in cases.cell(method, cases.Shape(accuracy=accuracy))]


def judged(logs, method):
    (found,) = (cell for cell in audit([*logs, *cases.control()]).claims if cell.cell.method == method)
    return str(found.verdict.kind), {outcome.name: outcome for outcome in found.outcomes}


def rulings(method, family, **changes):
    kind, outcomes = judged([*claim(method, family, **changes), *cases.opponents(method)], method)
    return kind, {name: str(outcome.ruling) for name, outcome in outcomes.items()}


def test_an_update_rule_is_asked_for_its_update():
    kind, found = rulings("pepita", "update")
    assert (kind, found["direction"], found["reference"], found["ladder"]) == (
        *("trustworthy", "passes"),
        *("not applicable", "not applicable"),
    )
    _, outcomes = judged([*claim("pepita", "update"), *cases.opponents("pepita")], "pepita")
    assert "cosine of the update lies above 0.05 with p < 0.01" in outcomes["direction"].reason


@pytest.mark.parametrize(("update", "wanted"), [(0.0, "walked back"), (-0.3, "walked back"), (0.06, "incomplete")])
def test_an_update_that_goes_nowhere_is_walked_back(update, wanted):
    kind, found = rulings("pepita", "update", update=update)
    assert kind == wanted
    assert found["direction"] == ("fires" if wanted == "walked back" else "undecided")


def test_an_update_that_any_labels_give_is_no_evidence():
    """A wide null of shuffled labels: it is not told from what they give."""
    _, found = rulings("pepita", "update", spread=0.3)
    assert found["direction"] == "undecided"


@pytest.mark.parametrize(("true", "sd"), [(0.15, 0.2), (0.05, 0.05)])
@pytest.mark.parametrize("together", [0.0, 0.95])
def test_shuffles_say_nothing_of_how_seeds_differ(true, sd, together):
    """Narrow, independent shuffles beside blocks that vary widely, and together: by chance few fire and few pass."""
    rng, seeds, blocks, runs = np.random.default_rng(0), 3, 3, 1000
    nulls = tuple(NullDraws.of(rng.normal(0, 0.01, (199, blocks))) for _ in range(seeds))
    fired, passed, taken_for_redraws = 0, 0, 0
    for _ in range(runs):
        shared, own = rng.normal(size=(seeds, 1)), rng.normal(size=(seeds, blocks))
        cosines = true + sd * (np.sqrt(together) * shared + np.sqrt(1 - together) * own)
        found, wrong = pool(cosines, nulls, redrawn=False), pool(cosines, nulls)
        fired += bool((found.gamma_high < 0.05 and not (found.low > 0.05).any()) or found.against.any())
        passed += bool((found.low > 0.05).all())
        taken_for_redraws += wrong.gamma_high < 0.05
    if true == 0.05:
        assert fired / runs < 0.04  # 2.5 %, and three standard errors
        assert passed / runs < 0.04
        assert taken_for_redraws / runs > 0.09, "as fresh feedback they would fire four times too often"
    else:
        assert fired / runs < 0.025


def test_a_local_objective_is_asked_whether_its_last_blocks_add():
    kind, found = rulings("local", "objective", local=True)
    applicable = {name for name, ruling in found.items() if ruling != "not applicable"}
    assert applicable >= {"learning", "scale", "depth", "movement", "ladder"}
    assert not applicable & {"direction", "reference", "fidelity"}
    assert (kind, found["ladder"]) == ("trustworthy", "passes")


@pytest.mark.parametrize("local", [None, False])
def test_without_a_proof_it_is_asked_as_an_update(local):
    kind, found = rulings("local", "objective", local=local, update=0.0)
    assert (kind, found["direction"], found["ladder"]) == ("walked back", "fires", "not applicable")


def test_decoders_of_a_local_loss_are_no_feedback():
    """A local rule that learns its decoders needs no run with fixed ones; where it is not local, it does."""
    (log,) = claim("local", "objective", local=True, learns=True)[:1]
    assert not RunFacts.of(log, cases_assumptions()).learns
    assert RunFacts.of(without_credit(log, "objective", learns=True), cases_assumptions()).learns


def cases_assumptions():
    return audit([*claim("pepita", "update"), *cases.control()]).assume


def test_deep_supervision_is_shown_and_decides_nothing():
    logs = [*claim("local", "objective", local=True), *cases.opponents("local")]
    better = [without_credit(run, "signal") for run in cases.cell("bp-deep", cases.Shape(accuracy=0.7))]
    kind, outcomes = judged([*logs, *better], "local")
    assert kind == "trustworthy"
    assert "over backprop with deep supervision (bp-deep) -20.00 pp" in outcomes["depth"].reason
    assert "deep supervision" not in judged(logs, "local")[1]["depth"].reason


@pytest.mark.parametrize(
    ("alone", "wanted", "said"),
    [
        (0.40, "passes", None),
        (0.45, "undecided", "the rule is not shown to help"),
        (None, "undecided", "its backprop batches may do it alone: no anchor2 among the logs"),
    ],
)
def test_what_its_backprop_batches_do_alone_is_no_merit_of_the_rule(alone, wanted, said):
    method = "dfa+anchor2"
    logs = [*cases.healthy(method), *cases.control()]
    if alone is not None:
        logs += cases.cell("anchor2", cases.Shape(accuracy=alone, exact=(True,) * (L + 1)))
    (cell,) = (cell for cell in audit(logs).claims if cell.cell.method == method)
    (depth,) = (outcome for outcome in cell.outcomes if outcome.name == "depth")
    assert str(depth.ruling) == wanted
    assert said is None or said in depth.reason
    if said is not None:
        assert depth.settles.startswith("train anchor2 alone with the same recipe and seeds")


def test_anchors_of_another_number_are_no_control():
    logs = [*cases.healthy("dfa+anchor2"), *cases.cell("anchor1", cases.Shape(accuracy=0.3)), *cases.control()]
    (cell,) = (cell for cell in audit(logs).claims if cell.cell.method == "dfa+anchor2")
    assert cell.cell.related.anchors_alone == ()
    assert len(cell.cell.related.control) == len(SEEDS)
