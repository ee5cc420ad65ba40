"""The runs that a sweep spec declares, to be held against logs that are there."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from creditscope.plans.grid import expand
from creditscope.plans.spec_file import ANY_DATA, spec_of
from creditscope.records import DataSpec, RunSpec
from creditscope.rules.build import Given

CLASSES = 10
"""Taken where no log says how many classes a data set has."""


def declared(
    plan: Path | str | Mapping[str, Any], logs: Iterable[RunSpec], rules: Given | None = None
) -> list[RunSpec]:
    """Every run that a sweep spec names, on the data that the logs were trained on.

    Nothing is loaded: what a data set of that name is, is taken from the logs; where none has it, only its name counts.

    Args:
        plan: A sweep spec: its YAML file, or what such a file holds.
        logs: What the logs say of their runs.
        rules: Rules from outside, by name.
    """
    known = {spec.data.name: (spec.data, spec.classes or CLASSES) for spec in logs if spec.data is not None}
    sweep = spec_of(plan, rules)
    data: dict[str, tuple[DataSpec, int]] = {}
    for name in sweep.data:
        said = Path(name).stem if name.endswith((".npz", ".txt")) else name
        data[name] = known.get(said, (ANY_DATA.model_copy(update={"name": said}), CLASSES))
    return expand(sweep, data, rules)
