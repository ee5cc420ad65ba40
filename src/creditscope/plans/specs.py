"""Specs for a script: method names and a few settings in, a list of runs out."""

from collections.abc import Sequence
from typing import Any

from creditscope.data import load_data
from creditscope.data.dataset import Dataset
from creditscope.plans.presets import build_specs
from creditscope.plans.presets import preset as find_preset
from creditscope.records import RunSpec
from creditscope.rules.build import given_rules


def specs(
    methods: Sequence[str] | None = None,
    *,
    preset: str = "demo",
    data: str | Dataset | None = None,
    seeds: Sequence[int] | None = None,
    changes: dict[str, Any] | None = None,
    rules: Sequence[object] = (),
) -> list[RunSpec]:
    """The runs of a preset, changed as you like.

    Args:
        methods: Method names, e.g. ``["bp", "dfa-rms", "dfa-rms@frozen"]``; None: the preset's.
        preset: Where the other settings come from: ``demo``, ``audit``, ``penalty``, ``snapshot`` or ``vit``.
        data: A data set or its name; None: the preset's.
        seeds: Seeds; None: the preset's.
        changes: Settings to change, e.g. ``{"width": 128, "epochs": 5, "lr": 1e-3, "rule.decay": 0.1}``.
        rules: Rules of your own that methods name: classes, or ``package.module:Name``.
    """
    chosen = find_preset(preset)
    loaded = data if isinstance(data, Dataset) else load_data(data or chosen.data)
    return build_specs(chosen, loaded.spec, loaded.classes, methods, seeds, changes, given_rules(rules))
