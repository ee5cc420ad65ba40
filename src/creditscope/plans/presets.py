"""Presets: named lists of runs. A preset is data only; ``build_specs`` turns it into specs for a data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from creditscope.errors import BadInput, argument, did_you_mean, setting
from creditscope.models import MODELS, full_options, options_of, refuse_data
from creditscope.records import DataSpec, Method, OptimiserSpec, ProbeSpec, RunSpec, engine_spec, parse_method
from creditscope.records.log import explain
from creditscope.records.method import literal
from creditscope.rules.build import Given, full_method

# Settings that begin so are options of the rules, or of the model.
_OPTION = "rule."
MODEL_OPTION = "model."
SEEDS = (42, 123, 456)

_RESMLP: dict[str, Any] = {
    "model": "resmlp",
    "width": 256,
    "depth": 4,
    "terminal_ln": True,
    "view": "flat",
    "targets": "labels",
    "batch": 128,
    "optimiser": OptimiserSpec(),
    "schedule": "cosine",
    "augment": "crop4+flip",
    "dtype": "float32",
    "matmul": "float32",
    "probe": ProbeSpec(),
}
_SMALL: dict[str, Any] = {
    "width": 64,
    "epochs": 10,
    "optimiser": OptimiserSpec(lr=1e-2),
    "probe": ProbeSpec(n=256, epochs=(0, 3)),
}
# What a model is trained with where that is not the recipe's.
_OF_MODEL: dict[str, dict[str, Any]] = {
    "mlp": {"terminal_ln": False},
    "resnet": {"terminal_ln": False, "width": 16, "depth": 9},
    "gpt-mini": {"width": 128, "view": "all"},
}
# The reference experiments train with TF32 products where the GPU has them: every number of the reproduction page
# holds with them, and probes are taken without.
_GPU: dict[str, Any] = {"matmul": "tf32"}


@dataclass(frozen=True)
class Preset:
    """A named list of runs.

    Args:
        about: One line for ``--help`` and the plan.
        data: Default data set.
        methods: Method names.
        fields: Fields of ``RunSpec`` that differ from the reference recipe.
        variants: The methods are run once for each of these further changes of fields.
        seeds: Default seeds.
    """

    about: str
    data: str
    methods: tuple[str, ...]
    fields: Mapping[str, Any]
    variants: tuple[Mapping[str, Any], ...] = field(default=({},))
    seeds: tuple[int, ...] = SEEDS

    @property
    def count(self) -> int:
        """How many runs it holds."""
        return len(self.methods) * len(self.variants) * len(self.seeds)


_PENALTIES = ("0.0001", "0.001", "0.01", "0.1")
# What every claim is held against: whether the task rewards depth at all, and what the readout alone reaches.
_CONTROLS = ("bp@frozen", "bp@readout")
PRESETS: dict[str, Preset] = {
    "demo": Preset(
        "small runs on the bundled images: the failure, its remedy, their frozen twins and the readout alone",
        "fashion-mini",
        (
            *("bp", "bp+pen0.01", "fa", "dfa", "dfa-rms", "dfa-rms+pen0.01"),
            *("bp+pen0.01@frozen", "fa@frozen", "dfa@frozen", "dfa-rms@frozen", *_CONTROLS),
        ),
        _SMALL,
        seeds=(*SEEDS, 789, 1011),
    ),
    "audit": Preset(
        "the audit: every rule and its frozen twin, ResMLP on CIFAR-10, 100 epochs",
        "cifar10",
        (
            *("bp", "fa", "fa-block", "dfa", "dfa-rms"),
            *("fa@frozen", "fa-block@frozen", "dfa@frozen", "dfa-rms@frozen", *_CONTROLS),
        ),
        {**_GPU, "epochs": 100},
    ),
    "penalty": Preset(
        "does containing the stream rescue learning? dfa-rms under four penalties, 30 epochs",
        "cifar10",
        (
            *("bp", "bp+pen0.01", "dfa-rms", *(f"dfa-rms+pen{value}" for value in _PENALTIES)),
            *("bp+pen0.01@frozen", "dfa-rms@frozen", *_CONTROLS),
        ),
        {**_GPU, "epochs": 30},
    ),
    "snapshot": Preset(
        "the stream over training with and without terminal LayerNorm, 100 epochs",
        "cifar10",
        ("bp", "dfa-rms", "dfa-rms@frozen", *_CONTROLS),
        {**_GPU, "epochs": 100},
        ({"terminal_ln": True}, {"terminal_ln": False}),
    ),
    "vit": Preset(
        "ViT-Mini on CIFAR-10: bp, dfa-rms, their frozen twins and the readout alone, 30 epochs",
        "cifar10",
        ("bp", "dfa-rms", "dfa-rms@frozen", *_CONTROLS),
        {
            **_GPU,
            "model": "vit-mini",
            "width": 128,
            "view": "cls",
            "epochs": 30,
            "probe": ProbeSpec(n=256, epochs=(0, 5)),
        },
    ),
}
_OPTIMISER = ("lr", "weight_decay", "momentum")


def preset(name: str) -> Preset:
    """A preset by name.

    Args:
        name: One of ``PRESETS``.
    """
    if name not in PRESETS:
        raise BadInput(f"unknown preset {name!r}; {did_you_mean(name, PRESETS)}")
    return PRESETS[name]


def build_specs(
    chosen: Preset,
    data: DataSpec,
    classes: int,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    rules: Given | None = None,
) -> list[RunSpec]:
    """The runs of a preset.

    Args:
        chosen: The preset.
        data: The data set as loaded, with its hashes.
        classes: Its number of classes.
        methods: Method names instead of the preset's.
        seeds: Seeds instead of the preset's.
        changes: Fields to change, e.g. ``{"epochs": 5, "lr": "1e-3"}``; ``lr``, ``weight_decay`` and ``momentum``
            reach the optimiser, ``probe.n`` and the like the probes, ``rule.decay`` and the like the options of the
            rules, ``model.activation`` and the like those of the model.
        rules: Rules from outside, by name.
    """
    specs = []
    options = {key.removeprefix(_OPTION): value for key, value in (changes or {}).items() if key.startswith(_OPTION)}
    changes = {key: value for key, value in (changes or {}).items() if not key.startswith(_OPTION)}
    named = [_full(name, options, rules or {}) for name in methods or chosen.methods]
    for variant in chosen.variants:
        fields = _fields(chosen, variant, data, changes)
        refuse_data(fields["model"], data)
        for method in named:
            for seed in chosen.seeds if seeds is None else seeds:
                try:
                    specs.append(engine_spec(method, **fields, seed=seed, data=data, classes=classes))
                except ValidationError as error:
                    why = f"run {method} cannot be set up: {explain(error)}"
                    advice = ("; correct ", argument("changes", flag="set"), " or ", argument("methods", flag="rules"))
                    raise BadInput(why, *advice, why=why) from None
    return list(dict.fromkeys(specs))


def _full(name: str, options: Mapping[str, Any], rules: Given) -> Method:
    """A method with the options that a setting adds to it."""
    method = parse_method(name)
    return full_method(replace(method, options={**options, **method.options}), rules)


def refusal(
    chosen: Preset, data: DataSpec, key: str, value: Any, beside: Mapping[str, Any] | None = None
) -> str | None:
    """Why a setting cannot have a value, whatever the other settings; None where it can.

    Args:
        chosen: Where the other settings come from.
        data: Any data set.
        key: The setting.
        value: Its value.
        beside: Settings that it depends on, such as the model whose option it is.
    """
    try:
        fields = _fields(chosen, {}, data, {**(beside or {}), key: value})
        engine_spec("bp", **fields, seed=0, data=data, classes=10)
    except ValidationError as error:
        return explain(error)
    except BadInput as error:
        return error.why
    return None


def _fields(chosen: Preset, variant: Mapping[str, Any], data: DataSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    options = {key.removeprefix(MODEL_OPTION): value for key, value in changes.items() if key.startswith(MODEL_OPTION)}
    changes = {key: value for key, value in changes.items() if not key.startswith(MODEL_OPTION)}
    fields = {**_RESMLP, **chosen.fields, **variant}
    model = changes.get("model", fields["model"])
    fields |= _OF_MODEL.get(model, {})
    if data.shape is not None and len(data.shape) != 3:
        fields["augment"] = "none"  # crops and flips are for pictures
    if model not in MODELS.names():
        fields |= {"width": None, "terminal_ln": None}  # what we do not know of a user's own model
        options = {key: literal(value) if isinstance(value, str) else value for key, value in options.items()}
    else:
        options = full_options(model, options)
    return _changed(fields | {"architecture": options or None}, changes)


def setting_names() -> list[str]:
    """Every setting that ``changes`` knows by its own name."""
    of_models = (f"{MODEL_OPTION}{option}" for name in MODELS.names() for option in options_of(name))
    return sorted({*_SETTABLE, *_OPTIMISER, *_NESTED, *of_models} - set(_INNER))


def _changed(fields: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(fields)
    # Which optimiser comes before its constants.
    for key, value in sorted(changes.items(), key=lambda change: change[0] != "optimiser.name"):
        outer, _, inner = ("optimiser." + key if key in _OPTIMISER else key).partition(".")
        if outer not in _SETTABLE or (inner and f"{outer}.{inner}" not in _NESTED):
            known = [*_SETTABLE, *_OPTIMISER, *_NESTED]
            raise BadInput(setting(key), f": no such setting; {did_you_mean(key, known)}")
        fields[outer] = _nested(fields[outer], inner, value, key) if inner else value
    return fields


def _nested(record: Any, inner: str, value: Any, key: str) -> Any:
    try:
        return type(record).model_validate(record.model_dump() | {inner: value})
    except ValidationError as error:
        why = f"{explain(error)}; give a value of that kind"
        raise BadInput(setting(key, value), f": {why}", why=why) from None


_INNER: dict[str, Any] = {"optimiser": OptimiserSpec, "probe": ProbeSpec}
_NESTED = [f"{outer}.{inner}" for outer, record in _INNER.items() for inner in record.model_fields]
_SETTABLE = (*_RESMLP, "epochs")
