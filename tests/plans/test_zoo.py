"""The zoo's plan: which methods, in which runs, and what a tuned learning rate means for matching."""

import pytest
from cases.specs import spec
from pydantic import ValidationError

from creditscope.errors import BadInput
from creditscope.models import MODELS
from creditscope.plans import presets
from creditscope.plans.zoo import QUOTED, RATES, SMALL, ZOO, Part, parts_of
from creditscope.records import DataSpec, OptimiserSpec, Tuning
from creditscope.registry import DATASETS
from creditscope.rules import RULES

TUNED = Tuning(rates=(0.1, 0.2, 0.3), held_out=10, seed=1, epochs=2, accuracy=(0.5, 0.7, 0.6))
IMAGES = DataSpec(name="any", shape=(3, 32, 32), n_train=1, n_test=1)
TEXT = DataSpec(name="any", shape=(64,), n_train=1, n_test=1, tokens=64)


def test_every_rule_of_the_registry_is_asked_for_on_the_cheap_models():
    for zoo, names in ((ZOO, ("mlp", "resmlp")), (SMALL, ("mlp", "resmlp"))):
        for name in names:
            asked = {text.partition("-rms")[0].partition("+")[0] for text in zoo[name].named()}
            assert set(RULES.names()) - {"bp-deep", "anchor"} <= asked
    assert all(ZOO[name].rules == QUOTED for name in ("resnet", "vit-mini", "gpt-mini"))


@pytest.mark.parametrize("part", [*ZOO.values(), *SMALL.values()], ids=lambda part: part.name)
def test_every_part_has_a_model_and_data_that_exist(part):
    assert part.data in DATASETS.names()
    specs = part.runs(TEXT if part.name == "gpt-mini" else IMAGES, 10, "dfa@frozen", TUNED, 0.2)
    assert [each.seed for each in specs] == list(presets.SEEDS)
    assert {each.model for each in specs} == {part.name} <= set(MODELS.names())
    assert {each.optimiser.lr for each in specs} == {0.2}
    assert {each.tuned for each in specs} == {TUNED}
    assert specs[0].epochs == part.fields["epochs"] > part.tuning_epochs


def test_the_runs_that_choose_have_one_seed_and_their_own_epochs():
    (one,) = SMALL["mlp"].runs(IMAGES, 10, "bp", None, RATES[0], epochs=2)
    assert (one.seed, one.epochs, one.tuned, one.optimiser.lr) == (presets.SEEDS[0], 2, None, RATES[0])


def test_each_rule_comes_with_the_twins_that_a_claim_needs():
    part = Part("resmlp", "cifar10", {}, None, readouts=True)
    assert part.methods("bp") == ["bp", "bp@frozen", "bp@readout"]
    assert part.methods("kp") == ["kp", "kp@fixed-feedback", "kp@frozen", "kp@readout"]
    assert part.methods("dfa-rms+pen0.01") == ["dfa-rms+pen0.01", "dfa-rms@frozen", "dfa-rms@readout"]
    without = Part("resmlp", "cifar10", {}, None)
    assert without.methods("bp") == ["bp", "bp@frozen", "bp@readout"]
    assert without.methods("fa") == ["fa", "fa@frozen"]
    with pytest.raises(BadInput, match="unknown rule 'no-such-rule'"):
        part.methods("no-such-rule")


def test_parts_by_name():
    assert [part.name for part in parts_of(ZOO, None)] == ["mlp", "resmlp", "resnet", "vit-mini", "gpt-mini"]
    assert [part.name for part in parts_of(SMALL, ["mlp"])] == ["mlp"]
    with pytest.raises(BadInput, match="the zoo has no part 'vit'; did you mean 'vit-mini'"):
        parts_of(ZOO, ["vit"])


@pytest.mark.parametrize(
    ("accuracy", "best"),
    [
        ((0.5, 0.7, 0.6), 0.2),
        ((0.7, 0.7, 0.6), 0.1),
        ((None, 0.0, None), 0.2),
        ((None, None, None), 0.1),
    ],
)
def test_the_best_rate_is_that_of_the_highest_accuracy(accuracy, best):
    assert TUNED.model_copy(update={"accuracy": accuracy}).best == best


def test_a_tuning_has_one_accuracy_a_rate():
    with pytest.raises(ValidationError, match="2 rates and 1 accuracies; wanted one for each"):
        Tuning(rates=(0.1, 0.2), held_out=10, seed=1, epochs=2, accuracy=(0.5,))


def test_runs_tuned_alike_match_whatever_rates_were_best_and_others_do_not():
    other = TUNED.model_copy(update={"accuracy": (0.9, 0.1, 0.1)})
    claim = spec("dfa", tuned=TUNED, optimiser=OptimiserSpec(lr=0.2))
    twin = spec("dfa@frozen", tuned=other, optimiser=OptimiserSpec(lr=0.1))
    assert claim.match_key == twin.match_key
    assert claim.cell_key != spec("dfa", tuned=other, optimiser=OptimiserSpec(lr=0.1)).cell_key
    for changed in (
        spec("dfa@frozen", optimiser=OptimiserSpec(lr=0.2)),
        spec("dfa@frozen", tuned=TUNED.model_copy(update={"rates": (0.1, 0.2, 0.4)}), optimiser=OptimiserSpec(lr=0.2)),
        spec("dfa@frozen", tuned=TUNED.model_copy(update={"held_out": 11}), optimiser=OptimiserSpec(lr=0.2)),
        spec("dfa@frozen", tuned=TUNED, optimiser=OptimiserSpec(lr=0.2, weight_decay=0.5)),
    ):
        assert changed.match_key != claim.match_key
    assert spec("dfa", optimiser=OptimiserSpec(lr=0.2)).match_key != spec("dfa").match_key
