"""RunSpec: what it refuses, and what each of its keys depends on."""

import json

import pytest
from cases.specs import FIELDS, engine_specs, foreign_specs, spec
from hypothesis import given
from pydantic import ValidationError

from creditscope.records import DataSpec, FeedbackSpec, OptimiserSpec, ProbeSpec, RunSpec, Tuning, digest, parse_method

CHANGES = {
    "options": {"decay": 0.5},
    "fixed_feedback": True,
    "architecture": {"activation": "tanh"},
    "model": "vit-mini",
    "width": 16,
    "depth": 5,
    "terminal_ln": False,
    "view": "cls",
    "data": FIELDS["data"].model_copy(update={"hash_train": "c3"}),
    "classes": 3,
    "targets": "random",
    "seed": 43,
    "epochs": 4,
    "batch": 32,
    "optimiser": OptimiserSpec(lr=0.1),
    "schedule": "constant",
    "augment": "crop4+flip",
    "dtype": "float64",
    "matmul": "tf32",
    "probe": ProbeSpec(n=64),
    "rule": "fa",
    "credit_norm": "rms",
    "penalty": 0.5,
    "train_last": 1,
    "train_embedding": False,
    "injection": "somewhere",
    "feedback": FeedbackSpec(dist="normal", scale="1", seed=3, hash="d4"),
    "origin": "watch",
    "recipe": {"optimiser": "SGD lr=0.1"},
    "anchors": 2,
    "tuned": Tuning(rates=(0.001, 0.1), held_out=8, seed=1, epochs=1, accuracy=(0.5, 0.4)),
}
NOT_IN_STACK = {
    *("rule", "credit_norm", "penalty", "train_last", "train_embedding", "targets", "seed", "feedback", "injection"),
    "recipe",  # Of runs from elsewhere, which are never stacked.
    "options",
    "fixed_feedback",
    "anchors",
    "tuned",
    "optimiser",  # Only the learning rate was changed above: each run of a stack has its own.
}
NOT_IN_MATCH = {"train_last", "train_embedding", "seed", "feedback", "probe", "injection", "matmul", "penalty"}
NOT_IN_CELL = {"seed", "feedback", "injection"}
NOT_IN_RUN = {"feedback", "injection"}


def changed(field, base):
    return base.model_copy(update={field: CHANGES[field]})


def test_every_field_is_changed_in_these_tests():
    assert set(CHANGES) == set(RunSpec.model_fields)


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize(
    ("key", "ignored"),
    [("stack_key", NOT_IN_STACK), ("match_key", NOT_IN_MATCH), ("cell_key", NOT_IN_CELL), ("run_id", NOT_IN_RUN)],
)
def test_what_each_key_depends_on(key, ignored, field):
    base = spec("dfa")
    assert (getattr(changed(field, base), key) == getattr(base, key)) == (field in ignored)


def test_the_stack_shares_the_rest_of_the_optimiser():
    base = spec()
    assert spec(optimiser=OptimiserSpec(weight_decay=0.5)).stack_key != base.stack_key
    assert spec(optimiser=OptimiserSpec(betas=(0.5, 0.9))).stack_key != base.stack_key


@pytest.mark.parametrize("rule", ["fa", "fa-exact-head", "fa-block", "dfa", "dfa-rms"])
def test_a_local_rule_matches_its_frozen_twin_whatever_the_penalty(rule):
    keys = {spec(f"{rule}{tail}").match_key for tail in ("", "+pen0.01", "@frozen", "+pen0.1@frozen", "@last2")}
    assert len(keys) == 1


def test_backprop_matches_only_with_the_same_penalty():
    assert spec("bp").match_key == spec("bp@frozen").match_key
    assert spec("bp+pen0.01").match_key == spec("bp+pen0.01@frozen").match_key
    assert spec("bp+pen0.01").match_key != spec("bp@frozen").match_key


def test_normalisation_and_rule_must_match():
    assert spec("dfa").match_key != spec("dfa-rms").match_key
    assert spec("fa").match_key != spec("fa-block").match_key


def test_training_the_last_l_blocks_is_training_all():
    some, every = spec("bp@last4", depth=4), spec("bp", depth=4)
    assert (some.method, some.run_id, some.cell_key) == (every.method, every.run_id, every.cell_key)
    assert spec("bp@last3").run_id != every.run_id


def test_a_run_states_what_its_owner_says_of_it():
    told = RunSpec(rule="mine", origin="watch", epochs=3, recipe={"optimiser": "SGD lr=0.1"})
    assert [told.states(name) for name in ("epochs", "optimiser", "batch", "schedule")] == [True, True, False, False]
    assert RunSpec.model_validate_json(told.model_dump_json()) == told
    assert "recipe" not in told.model_copy(update={"recipe": None}).model_dump()


def test_seeds_differ_in_run_but_not_in_cell():
    one, two = spec(seed=1), spec(seed=2)
    assert one.cell_key == two.cell_key
    assert one.run_id != two.run_id


def test_what_training_fills_in_changes_no_name():
    planned = spec("dfa")
    begun = planned.model_copy(update={"feedback": CHANGES["feedback"], "injection": "e·B"})
    assert (begun.run_id, begun.cell_key) == (planned.run_id, planned.cell_key)


def test_a_foreign_runs_feedback_tells_cells_apart_but_its_draw_does_not():
    def cell(**feedback):
        return RunSpec(rule="dfa", origin="import", feedback=FeedbackSpec(**feedback)).cell_key

    assert cell(dist="normal") != cell(dist="uniform")
    assert cell(dist="normal", seed=1, hash="a") == cell(dist="normal", seed=2, hash="b")


def test_the_file_stem_is_method_seed_and_hash():
    name = spec("dfa-rms+pen0.01", seed=7).run_id
    assert name.startswith("dfa-rms+pen0.01-s7-")
    assert len(name.removeprefix("dfa-rms+pen0.01-s7-")) == 8


@given(engine_specs())
def test_the_method_of_a_spec_is_in_the_grammar(run):
    method = parse_method(run.method)
    assert (method.rule, method.credit_norm, method.penalty) == (run.rule, run.credit_norm, run.penalty)
    assert method.train_embedding == run.train_embedding
    assert run.is_baseline == (run.train_last == 0)


@given(engine_specs() | foreign_specs())
def test_specs_and_their_keys_survive_json(run):
    again = RunSpec.model_validate_json(run.model_dump_json())
    assert again == run
    for key in ("run_id", "stack_key", "match_key", "cell_key", "method"):
        assert getattr(again, key) == getattr(run, key)


def test_an_imported_log_may_know_only_its_rule():
    run = RunSpec(rule="pepita", origin="import")
    assert run.method == "pepita"
    assert not run.is_baseline


def refused(**changes):
    with pytest.raises(ValidationError) as caught:
        RunSpec(**(spec().model_dump() | changes))
    return caught.value.errors()[0]["msg"].removeprefix("Value error, ")


def test_an_engine_run_must_be_complete():
    assert refused(seed=None, batch=None) == "a run of the engine must know seed, batch"
    assert refused(rule="My Rule") == "rule 'My Rule': wanted lower-case letters, digits and dashes"
    assert refused(train_last=5) == "@last5: wanted 0 to 4 blocks, the model's depth"
    assert refused(train_last=-1) == "@last-1: wanted 0 to 4 blocks, the model's depth"
    assert refused(train_embedding=False) == "an embedding is frozen only with every block, got train_last all"


@pytest.mark.parametrize(
    "changes",
    [
        {"penalty": float("nan")},
        {"penalty": -1.0},
        {"width": 0},
        {"classes": 1},
        {"epochs": -1},
        {"optimiser": {"lr": 0}},
        {"optimiser": {"lr": float("inf")}},
        {"optimiser": {"betas": (0.9, 1.0)}},
        {"optimiser": {"betas": (float("inf"), 0.9)}},
        {"probe": {"n": 0}},
        {"dtype": "int8"},
        {"learning_rate": 1},
    ],
    ids=str,
)
def test_values_that_cannot_be_are_refused(changes):
    with pytest.raises(ValidationError):
        RunSpec(**(spec().model_dump() | changes))


def test_specs_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        spec().seed = 1


def test_a_number_written_as_text_is_read():
    assert OptimiserSpec(lr="1e-3").lr == 0.001


def test_digest_does_not_depend_on_the_order_of_keys():
    one, two = {"a": 1, "b": [1.5, None]}, {"b": [1.5, None], "a": 1}
    assert digest(one) == digest(two) != digest({"a": 1, "b": [1.5, 0]})
    assert digest(json.loads(json.dumps(one))) == digest(one)


def test_data_specs_keep_only_a_name_when_nothing_else_is_known():
    assert DataSpec(name="mine").hash_train is None


@pytest.mark.parametrize(
    ("counts", "unequal"), [((100, 110), False), ((100, 111), True), ((5, 0, 5), False), (None, False), ((0, 0), False)]
)
def test_classes_are_unequal_when_their_sizes_differ_by_more_than_ten_percent(counts, unequal):
    assert DataSpec(name="any", class_counts=counts).unequal is unequal


def test_a_model_is_named_with_its_options():
    assert spec().model_text == "resmlp"
    assert RunSpec(rule="x", origin="import").model_text is None
    told = spec(model="m", architecture={"heads": 2, "activation": "tanh", "tied": True})
    assert told.model_text == "m(activation=tanh, heads=2, tied=true)"


def test_each_optimiser_has_its_own_constants():
    assert set(OptimiserSpec().model_dump()) == {"name", "lr", "weight_decay", "betas", "eps"}
    told = OptimiserSpec(name="sgd", lr=0.1)
    assert told.model_dump() == {"name": "sgd", "lr": 0.1, "weight_decay": 0.01, "momentum": 0.9}
    assert OptimiserSpec.model_validate(told.model_dump()) == told
    assert spec(optimiser=told).stack_key != spec(optimiser=told.model_copy(update={"momentum": 0.5})).stack_key
    for constants, message in (
        ({"momentum": 0.9}, "adamw has no momentum; leave it out, or choose another optimiser"),
        ({"name": "sgd", "eps": 1e-6}, "sgd has no eps"),
        ({"name": "sgd", "momentum": None}, "sgd wants a momentum, 0 for none"),
        ({"name": "sgd", "momentum": 1}, "less than 1"),
    ):
        with pytest.raises(ValidationError, match=message):
            OptimiserSpec(**constants)
