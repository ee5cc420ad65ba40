"""With the recipe stated and a few seeds, a user's own model gets a verdict, by audit_model and by watch."""

import copy

import pytest
import torch
from scope.nets import Net, samples
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.records import DataSpec
from creditscope.scope import rule_credit
from creditscope.scope.recipe import recipe_fields

EPOCHS, BATCH, SEEDS = 20, 100, (1, 2, 3)
RECIPE = {"epochs": EPOCHS, "batch": BATCH, "optimiser": "Adam lr=0.005", "schedule": "constant", "data": "rings"}
FAST = {"redraws": 199, "directions": 1}


def rings(n, seed):
    """Classes that no linear map tells apart."""
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, torch.bucketize(x[:, :2].square().sum(1) + x[:, 2] * x[:, 3], torch.tensor([0.6, 1.5, 3.0]))


TRAIN, TEST = rings(1000, 0), rings(1500, 1)


def build(seed):
    model = Net(width=24, seed=seed)
    model.dropout = nn.Identity()
    return model


def fit(model, write_gradients, after_epoch=lambda: None):
    """The user's own loop."""
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.005)
    for _ in range(EPOCHS):
        for start in range(0, 1000, BATCH):
            optimiser.zero_grad()
            write_gradients(model, TRAIN[0][start : start + BATCH], TRAIN[1][start : start + BATCH])
            optimiser.step()
        after_epoch()


def balanced(model):
    """Mean over classes, which differ in size, of the accuracy on each."""
    right = (model.eval()(TEST[0]).argmax(1) == TEST[1]).double()
    return float(torch.stack([right[TEST[1] == label].mean() for label in TEST[1].unique()]).mean())


def backprop(model, x, y):
    functional.cross_entropy(model(x), y).backward()


def direct_feedback(matrices):
    """DFA of the user's own: each block is told the output error through a fixed matrix, and nothing else."""

    def write(model, x, y):
        h = model.embed(x)
        inputs = []
        for block in model.blocks:
            inputs.append(h)
            h = block(h.detach())
        logits = model.head(h.detach())
        functional.cross_entropy(logits, y).backward()
        error = (logits.softmax(1) - functional.one_hot(y, 4)).detach() / len(x)
        for level, block in enumerate(model.blocks):
            out = block(inputs[level].detach())
            if out.requires_grad:
                out.backward(error @ matrices[f"B.{level}"])
        inputs[0].backward(error @ matrices["B.0"])

    return write


def feedback(seed):
    generator = torch.Generator().manual_seed(seed)
    return {f"B.{level}": torch.randn(4, 24, generator=generator) for level in range(3)}


def verdict_of(audit):
    (claim,) = audit.claims
    return str(claim.verdict.kind), {o.name: (str(o.ruling), str(o.evidence.grade)) for o in claim.outcomes}


def test_a_users_backprop_model_is_found_trustworthy():
    logs, accuracies = [], []
    for seed in SEEDS:
        model = build(seed)
        init, twin = copy.deepcopy(model.state_dict()), cs.frozen_copy(model)
        for one in (model, twin):
            fit(one, backprop)
        audit = cs.audit_model(
            model,
            loader=TEST,
            credit=rule_credit("bp"),
            init=init,
            baseline=twin,
            recipe=RECIPE,
            name="bp",
            seed=seed,
            **FAST,
        )
        # One seed is not enough, and that is all that is open.
        assert verdict_of(audit)[0] == "incomplete"
        still_open = [name for name, (ruling, _) in verdict_of(audit)[1].items() if ruling == "undecided"]
        assert still_open == ["learning", "depth"]
        logs += audit.logs
        accuracies.append([balanced(m) for m in (model, twin)])
    together = cs.audit(logs)
    kind, outcomes = verdict_of(together)
    assert kind == "trustworthy", together.to_text()
    assert outcomes["depth"] == ("passes", "exact")
    depth = next(o for o in together.claims[0].outcomes if o.name == "depth")
    assert depth.evidence.value == pytest.approx(100 * sum(a - b for a, b in accuracies) / len(SEEDS))
    assert depth.baseline["matched"] is True
    assert together.claims[0].cell.spec.data.name == "rings"
    assert logs[0].last.epoch == logs[0].end.epoch == EPOCHS


def watched(model, write, recipe, **given):
    with cs.watch(model, probe=TEST, budget=0.0, recipe=recipe, on_alert=lambda alert: None, **FAST, **given) as scope:
        fit(model, write, scope.epoch)
    return scope.log


def test_the_same_by_watching():
    logs = []
    for seed in SEEDS:
        model = build(seed)
        twin = cs.frozen_copy(model)
        logs += [watched(m, backprop, RECIPE, credit=rule_credit("bp"), name="bp", seed=seed) for m in (model, twin)]
    audit = cs.audit(logs)
    assert verdict_of(audit)[0] == "trustworthy", audit.to_text()
    depth = next(o for o in audit.claims[0].outcomes if o.name == "depth")
    assert depth.details["n_test"] == len(TEST[1])


def test_a_users_dfa_whose_feedback_is_thrown_away_is_not_taken_on_trust():
    """The matrices that are saved are not those that trained: the credit points nowhere, at a width that hides it."""
    logs = []
    for seed in SEEDS:
        model = build(seed)
        credit = rule_credit("dfa", feedback(seed + 100))
        logs.append(watched(model, direct_feedback(feedback(seed)), RECIPE, credit=credit, name="dfa", seed=seed))
    audit = cs.audit(logs)
    kind, outcomes = verdict_of(audit)
    assert kind == "incomplete", audit.to_text()
    assert outcomes["direction"][0] == "undecided"


def test_another_recipe_does_not_match():
    logs = []
    for seed in SEEDS[:2]:
        model = build(seed)
        for one, recipe in ((model, RECIPE), (cs.frozen_copy(model), RECIPE | {"optimiser": "SGD lr=0.1"})):
            logs.append(watched(one, backprop, recipe, credit=rule_credit("bp"), name="mine", seed=seed))
    depth = next(o for o in cs.audit(logs).claims[0].outcomes if o.name == "depth")
    assert str(depth.ruling) == "not measured"
    assert "no frozen-blocks run matches; the nearest differs in recipe" in depth.reason


def test_runs_of_two_recipes_are_two_cells_with_two_labels():
    logs = [
        cs.audit_model(build(1), loader=TEST, recipe=RECIPE | {"optimiser": words}, redraws=0, directions=0).logs[0]
        for words in ("Adam lr=0.005", "SGD lr=0.1")
    ]
    labels = [claim.cell.label for claim in cs.audit(logs).claims]
    assert [("Adam lr=0.005" in label, "SGD lr=0.1" in label) for label in labels] == [(True, False), (False, True)]


def test_a_watch_that_ends_early_is_not_finished():
    model = build(1)
    with cs.watch(model, probe=samples(), recipe={"epochs": 5}, budget=0.0, **FAST) as scope:
        scope.epoch()
    assert scope.log.end.status == "stopped"
    assert scope.log.end.reason == "1 epochs were done where the recipe says 5"
    assert not scope.log.finished


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ({"epoch": 3}, "a recipe has no 'epoch'; did you mean 'epochs'?"),
        ({"epochs": 0}, "wanted epochs of the recipe as a whole number of at least 1, got 0; write epochs=20"),
        ({"batch": "64"}, "wanted batch of the recipe as a whole number of at least 1, got '64'; write batch=20"),
        ({"batch": True}, "wanted batch of the recipe as a whole number of at least 1, got True;"),
        ({"optimiser": 0.1}, "wanted optimiser of the recipe in words, got 0.1; e.g. optimiser='SGD lr=0.1 mom"),
        ({"schedule": " "}, "wanted schedule of the recipe in words, got ' '; e.g."),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused_in_one_line(recipe, says):
    with pytest.raises(BadInput) as error:
        cs.audit_model(Net(), loader=samples(), recipe=recipe, **FAST)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_no_recipe_states_nothing():
    data = DataSpec(name="loader")
    assert recipe_fields(None, data) == {"recipe": None, "data": data}
