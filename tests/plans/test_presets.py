"""Presets: what they hold, and what may be changed."""

import pytest

from creditscope.errors import BadInput
from creditscope.execution.plan import pack
from creditscope.plans.presets import PRESETS, build_specs, preset
from creditscope.records import DataSpec, parse_method

PICTURES = DataSpec(name="p", hash_train="a", hash_test="b", shape=(3, 32, 32), n_train=100, n_test=50)
# What a method's name decides, and the setting does not.
_METHOD = {"rule", "origin", "credit_norm", "penalty", "train_last", "train_embedding", "injection", "feedback"}
VECTORS = DataSpec(name="v", hash_train="a", hash_test="b", shape=(32,), n_train=100, n_test=50)


def build(name="demo", data=PICTURES, **options):
    return build_specs(preset(name), data, 10, **options)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds_every_method_with_every_seed(name):
    runs = build(name)
    chosen = PRESETS[name]
    assert len(runs) == len(chosen.methods) * len(chosen.seeds) * len(chosen.variants) == chosen.count
    assert {run.method for run in runs} == set(chosen.methods)
    assert len({run.run_id for run in runs}) == len(runs)
    assert len(pack(runs)) == len(chosen.variants)
    assert chosen.about


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_of_a_preset_has_its_matched_baseline(name):
    runs = build(name, seeds=[1])
    frozen = {run.match_key for run in runs if run.is_baseline}
    assert [run.method for run in runs if not run.is_baseline and run.match_key not in frozen] == []


@pytest.mark.parametrize("name", PRESETS)
def test_every_setting_of_a_preset_has_backprop_its_twin_and_the_readout_alone(name):
    methods: dict[str, set[str]] = {}
    for run in build(name, seeds=[1]):
        setting = run.model_dump_json(exclude=_METHOD)
        methods.setdefault(setting, set()).add(run.method)
    assert len(methods) == len(PRESETS[name].variants)
    for trained in methods.values():
        assert {"bp", "bp@frozen", "bp@readout"} <= trained


def test_the_recipe_of_the_audit():
    run = next(run for run in build("audit") if run.method == "dfa-rms")
    assert (run.model, run.width, run.depth, run.terminal_ln, run.epochs, run.batch) == (
        *("resmlp", 256, 4, True, 100, 128),
    )
    assert (run.optimiser.lr, run.optimiser.weight_decay, run.optimiser.betas) == (1e-3, 0.01, (0.9, 0.999))
    assert (run.schedule, run.augment, run.dtype) == ("cosine", "crop4+flip", "float32")


def test_changes_reach_the_run_its_optimiser_and_its_probes():
    changes = {"width": "32", "lr": "0.5", "weight_decay": 0, "epochs": "3", "probe.epochs": ["0", "5"], "probe.n": 7}
    for run in build(methods=["bp"], seeds=[5], changes=changes):
        assert (run.width, run.epochs, run.seed) == (32, 3, 5)
        assert (run.optimiser.lr, run.optimiser.weight_decay) == (0.5, 0)
        assert (run.probe.epochs, run.probe.n) == ((0, 5), 7)


def test_the_same_run_twice_is_one_run():
    assert len(build(methods=["bp", "bp"], seeds=[1, 1])) == 1


def test_vectors_are_not_cropped_unless_asked_for():
    assert {run.augment for run in build(data=VECTORS)} == {"none"}
    assert {run.augment for run in build()} == {"crop4+flip"}
    assert {run.augment for run in build(changes={"augment": "none"})} == {"none"}


def test_of_a_users_own_model_only_what_is_said_is_known():
    run = build(methods=["bp"], seeds=[1], changes={"model": "mine"})[0]
    assert (run.width, run.terminal_ln) == (None, None)
    run = build(methods=["bp"], seeds=[1], changes={"model": "mine", "width": 9})[0]
    assert (run.width, run.terminal_ln) == (9, None)


def test_options_reach_the_model_in_their_types_and_defaults_are_left_out():
    run = build(methods=["bp"], seeds=[1], changes={"model": "mlp", "model.activation": "tanh"})[0]
    assert (run.architecture, run.terminal_ln, run.width) == ({"activation": "tanh"}, False, 64)
    run = build(methods=["bp"], seeds=[1], changes={"model": "mlp", "model.activation": "relu", "terminal_ln": True})[0]
    assert (run.architecture, run.terminal_ln) == (None, True)
    own = build(methods=["bp"], seeds=[1], changes={"model": "mine", "model.p": "3", "model.q": "x"})[0]
    assert own.architecture == {"p": 3, "q": "x"}


def test_sgd_and_its_momentum_in_any_order():
    for changes in (
        {"momentum": "0.5", "optimiser.name": "sgd", "lr": "0.1"},
        {"lr": "0.1", "optimiser.name": "sgd", "momentum": "0.5"},
    ):
        run = build(methods=["bp"], seeds=[1], changes=changes)[0]
        assert (run.optimiser.name, run.optimiser.momentum, run.optimiser.lr) == ("sgd", 0.5, 0.1)


def test_methods_parse():
    for chosen in PRESETS.values():
        assert [str(parse_method(name)) for name in chosen.methods] == list(chosen.methods)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["dfa-rsm"]}, r"did you mean 'dfa-rms'"),
        ({"methods": ["bp@last9"]}, "run bp@last9 cannot be set up: .*wanted 0 to 4 blocks"),
        ({"changes": {"lr": "nan"}}, r"changes\['lr'\]='nan': lr: Input should be a finite number"),
        ({"changes": {"lr": float("inf")}}, "finite number"),
        ({"changes": {"lr": "-1"}}, r"changes\['lr'\]='-1': lr: Input should be greater than 0"),
        ({"changes": {"lr": "fast"}}, r"changes\['lr'\]='fast': lr: Input should be a valid number"),
        ({"changes": {"wdith": "3"}}, r"changes\['wdith'\]: no such setting; did you mean 'width'"),
        ({"changes": {"width.x": "3"}}, r"changes\['width.x'\]: no such setting"),
        ({"changes": {"probe.m": "3"}}, r"changes\['probe.m'\]: no such setting; did you mean 'probe.n'"),
        ({"changes": {"seed": "3"}}, r"changes\['seed'\]: no such setting"),
        ({"changes": {"width": "wide"}}, "cannot be set up: width: Input should be a valid integer"),
        ({"changes": {"width": "0"}}, "cannot be set up: width: .*greater than 0"),
        ({"changes": {"epochs": "-1"}}, "cannot be set up: epochs: .*greater than or equal to 0"),
        ({"changes": {"schedule": "step"}}, "cannot be set up: schedule: .*'cosine' or 'constant'"),
        ({"changes": {"model.heads": "2"}}, r"changes\['model.heads'\]: resmlp has no such option; known: second_sd"),
        ({"changes": {"momentum": "0.5"}}, r"changes\['momentum'\]='0.5': .*adamw has no momentum"),
        ({"changes": {"optimiser.name": "adam"}}, r"name: Input should be 'adamw' or 'sgd'"),
        ({"changes": {"optimiser": "sgd"}}, "cannot be set up: optimiser"),
    ],
)
def test_bad_settings_are_one_line(options, message):
    with pytest.raises(BadInput, match=message) as caught:
        build(**options)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"changes": {"lr": "nan"}}, "--set lr=nan: lr: Input should be a finite number"),
        ({"changes": {"lr": "-1"}}, "--set lr=-1: lr: Input should be greater than 0"),
        ({"changes": {"wdith": "3"}}, "--set wdith: no such setting; did you mean 'width'"),
        ({"changes": {"width": "wide"}}, "; correct --set or --rules"),
    ],
)
def test_the_command_line_names_its_own_options(options, message):
    with pytest.raises(BadInput) as caught:
        build(**options)
    assert message in caught.value.with_flags


def test_an_unknown_preset():
    with pytest.raises(BadInput, match="unknown preset 'auidt'; did you mean 'audit'"):
        preset("auidt")
