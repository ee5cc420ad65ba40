"""The sweep spec: a YAML file that says which runs, validated before anything starts.

``preset``, ``methods``, ``seeds``, ``data``, ``set`` (one value a setting) and ``grid`` (a list of values a setting)
stand at the top; each entry of ``runs`` inherits them and may change any. The sweep is the union of its entries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from creditscope.errors import BadInput, did_you_mean
from creditscope.models import MODELS
from creditscope.plans.presets import MODEL_OPTION, preset, refusal, setting_names
from creditscope.plans.yaml_lines import Located, Where, parse_yaml, read_yaml
from creditscope.records import RunSpec, parse_method
from creditscope.records.spec_parts import DataSpec
from creditscope.rules.build import Given, full_method

MAX_RUNS = 100_000
METHOD_SETTINGS = ("penalty", "train_last")
"""Settings that a method's name says: as axes of a grid they are written into it."""
_FLAGS = [name for name, field in RunSpec.model_fields.items() if field.annotation == (bool | None)]
# Any data will do to try a setting: the real one is read only when the whole file is known to be sound.
ANY_DATA = DataSpec(name="any", shape=(3, 32, 32), n_train=1, n_test=1)


class _Part(BaseModel):
    """What may stand at the top of the file and in each entry of ``runs``."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    preset: StrictStr | None = None
    methods: list[StrictStr] | None = Field(default=None, min_length=1)
    seeds: list[StrictInt] | None = Field(default=None, min_length=1)
    data: StrictStr | list[StrictStr] | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)


class _File(_Part):
    runs: list[_Part] | None = Field(default=None, min_length=1)


@dataclass(frozen=True)
class SweepPart:
    """One product of methods, seeds, data and axes.

    Args:
        preset: Name of the preset that the other settings come from.
        methods: Method names.
        seeds: Seeds.
        data: Names of data sets, ``.npz`` or ``.txt`` files.
        axes: The values of each setting; one value where it is fixed.
        line: Where it stands in the file.
    """

    preset: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    data: tuple[str, ...]
    axes: Mapping[str, tuple[Any, ...]]
    line: int

    @property
    def size(self) -> int:
        """How many runs it stands for, doubles included."""
        product = len(self.methods) * len(self.seeds) * len(self.data) * len(preset(self.preset).variants)
        for values in self.axes.values():
            product *= len(values)
        return product


@dataclass(frozen=True)
class SweepSpec:
    """A validated sweep spec.

    Args:
        name: The file's name.
        parts: The products whose union is the sweep.
    """

    name: str
    parts: tuple[SweepPart, ...]

    @property
    def data(self) -> tuple[str, ...]:
        """Every data set that is needed, in order."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.data))


def read_spec(path: Path, rules: Given | None = None) -> SweepSpec:
    """Read and validate a sweep spec.

    Args:
        path: The YAML file.
        rules: Rules from outside, by name.
    """
    return _validated(read_yaml(path), rules or {})


def parse_spec(name: str, text: str, rules: Given | None = None) -> SweepSpec:
    """Validate a sweep spec given as text.

    Args:
        name: What to call it in messages.
        text: The YAML.
        rules: Rules from outside, by name.
    """
    return _validated(parse_yaml(name, text), rules or {})


def spec_of(sweep: Path | str | Mapping[str, Any], rules: Given | None = None) -> SweepSpec:
    """A sweep spec from a file, or from what such a file would hold.

    Args:
        sweep: Path of the YAML file, or a mapping with its keys.
        rules: Rules from outside, by name.
    """
    if isinstance(sweep, Mapping):
        return _validated(Located("the sweep", dict(sweep), {}), rules or {})
    return read_spec(Path(sweep), rules)


def _validated(document: Located, rules: Given) -> SweepSpec:
    if not isinstance(document.value, dict):
        raise document.bad((), "wanted keys such as preset, methods and grid; see examples/sweeps")
    try:
        file = _File.model_validate(document.value)
    except ValidationError as error:
        raise _explained(document, error) from None
    if file.runs is None:
        parts = [_part(document, (), file, None, rules)]
    else:
        parts = [_part(document, ("runs", index), file, entry, rules) for index, entry in enumerate(file.runs)]
    total = sum(part.size for part in parts)
    if total > MAX_RUNS:
        raise document.bad((), f"{total} runs are more than {MAX_RUNS}; split the sweep into several specs")
    return SweepSpec(document.name, tuple(parts))


def _part(document: Located, where: Where, top: _Part, own: _Part | None, rules: Given) -> SweepPart:
    """One entry with what it inherits; every setting is tried alone, so that a bad one is named with its line."""
    levels: list[tuple[Where, _Part]] = [((), top)] + ([(where, own)] if own is not None else [])
    chosen, chosen_at = "demo", where
    given: dict[str, Any] = {}
    places: dict[str, Where] = {}
    axes: dict[str, tuple[Any, ...]] = {}
    for level, part in levels:
        if part.preset is not None:
            chosen, chosen_at = part.preset, (*level, "preset")
        for key in ("methods", "seeds", "data"):
            if getattr(part, key) is not None:
                given[key], places[key] = getattr(part, key), (*level, key)
        for key, value in part.set.items():
            axes[key], places[f"set {key}"] = (value,), (*level, "set", key)
        for key, values in part.grid.items():
            if key in part.set:
                raise document.bad((*level, "grid", key), "stands under set too; keep one")
            if not values:
                raise document.bad((*level, "grid", key), "an empty list of values; give at least one")
            axes[key], places[f"set {key}"] = tuple(values), (*level, "grid", key)
    try:
        base = preset(chosen)
    except BadInput as error:
        raise document.bad(chosen_at, str(error)) from None
    data = given.get("data", base.data)
    made = SweepPart(
        chosen,
        tuple(given.get("methods", base.methods)),
        tuple(given.get("seeds", base.seeds)),
        (data,) if isinstance(data, str) else tuple(data),
        axes,
        document.lines.get(where, 1),
    )
    if not made.data:
        raise document.bad(places["data"], "an empty list; name at least one data set")
    for key, choices in axes.items():
        _check_setting(document, made, key, choices, places[f"set {key}"])
    _check_methods(document, made, places, rules)
    return made


def _check_methods(document: Located, part: SweepPart, places: Mapping[str, Where], rules: Given) -> None:
    for index, name in enumerate(part.methods):
        where = (*places["methods"], index) if "methods" in places else ()
        try:
            method = full_method(parse_method(name), rules)
        except BadInput as error:
            raise document.bad(where, str(error)) from None
        for key, is_said in (("penalty", method.penalty != 0), ("train_last", method.train_last != "all")):
            if key in part.axes and is_said:
                raise document.bad(
                    where or places[f"set {key}"],
                    f"method {name!r} says its {key} too; say it in one place (methods replaces the preset's)",
                )


def _check_setting(document: Located, part: SweepPart, key: str, values: tuple[Any, ...], where: Where) -> None:
    known = [*setting_names(), *METHOD_SETTINGS]
    if key not in known:
        raise document.bad(where, f"no such setting; {did_you_mean(key, known)}")
    for value in values:
        if isinstance(value, bool) and key not in _FLAGS and not key.startswith(MODEL_OPTION):
            raise document.bad(where, f"wanted no true or false, got {str(value).lower()}")
        if key == "model" and str(value) not in MODELS.names():
            raise document.bad(where, f"unknown model {_brief(value)}; {did_you_mean(str(value), MODELS.names())}")
        if key == "penalty":
            _check_penalty(document, value, where)
        elif key == "train_last":
            if value != "all" and not (isinstance(value, int) and value >= 0):
                raise document.bad(where, f"wanted how many of the last blocks train (0, 1, …) or all, got {value!r}")
        else:
            on = "model" if key.startswith(MODEL_OPTION) else "optimiser.name"
            besides = [{on: str(each)} for each in part.axes.get(on, ()) if key != on] or [{}]
            tried = [refusal(preset(part.preset), ANY_DATA, key, value, beside) for beside in besides]
            why = next((each for each in tried if each is not None), None)
            if why is not None:
                raise document.bad(where, f"{_brief(value)}: {why}")


def _check_penalty(document: Located, value: Any, where: Where) -> None:
    try:
        if float(value) != 0:
            parse_method(f"bp+pen{float(value)!r}")
    except (TypeError, ValueError, OverflowError, BadInput):
        raise document.bad(where, f"wanted a penalty of 0 or more, such as 1e-2, got {_brief(value)}") from None


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _explained(document: Located, error: ValidationError) -> Exception:
    first = error.errors(include_url=False, include_input=False)[0]
    where = tuple(part for part in first["loc"] if part in _path_words(first["loc"], document.value))
    if first["type"] == "extra_forbidden":
        fields = _Part.model_fields if "runs" in where[:-1] else _File.model_fields
        return document.bad(where, f"no such key; {did_you_mean(str(first['loc'][-1]), fields)}")
    return document.bad(where, f"{first['msg'][0].lower()}{first['msg'][1:]}")


def _path_words(loc: tuple[str | int, ...], value: Any) -> list[str | int]:
    """The parts of a pydantic location that are keys or indices of the document: it also names branches of a union."""
    found: list[str | int] = []
    for part in loc:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            found.append(part)
            value = value[part]  # type: ignore[index]
    return found
