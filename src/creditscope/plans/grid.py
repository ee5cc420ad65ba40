"""From a sweep spec to the runs it stands for."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from creditscope.errors import BadFile, BadInput
from creditscope.plans.presets import build_specs, preset
from creditscope.plans.spec_file import METHOD_SETTINGS, SweepPart, SweepSpec
from creditscope.records import DataSpec, RunSpec, parse_method
from creditscope.rules.build import Given


def expand(sweep: SweepSpec, data: Mapping[str, tuple[DataSpec, int]], rules: Given | None = None) -> list[RunSpec]:
    """Every run of a sweep, each once, in the order of the file.

    Args:
        sweep: The sweep.
        data: By the name in the sweep: what the data set is, and its number of classes.
        rules: Rules from outside, by name.
    """
    runs: dict[RunSpec, None] = {}
    for part in sweep.parts:
        for name in part.data:
            for values in product(*part.axes.values()):
                point = dict(zip(part.axes, values, strict=True))
                try:
                    runs |= dict.fromkeys(_runs(part, *data[name], dict(point), rules))
                except BadInput as error:
                    raise BadFile(f"{sweep.name}: line {part.line}: {_shown(point)}{error.why}") from None
    return list(runs)


def _runs(part: SweepPart, data: DataSpec, classes: int, point: dict[str, Any], rules: Given | None) -> list[RunSpec]:
    said = {key: point.pop(key) for key in METHOD_SETTINGS if key in point}
    if "penalty" in said:
        said["penalty"] = float(said["penalty"])
    methods = [str(replace(parse_method(name), **said)) for name in part.methods]
    return build_specs(preset(part.preset), data, classes, methods, part.seeds, point, rules)


def _shown(point: Mapping[str, Any]) -> str:
    return f"at {', '.join(f'{key}={value}' for key, value in point.items())}: " if point else ""
