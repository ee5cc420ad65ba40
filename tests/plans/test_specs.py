"""Specs for a script."""

import pytest
from cases.fleets import features

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.plans.presets import PRESETS


def test_the_demo_by_default():
    runs = cs.specs()
    assert len(runs) == PRESETS["demo"].count == 60
    assert runs[0].data == cs.load_data("fashion-mini").spec


def test_methods_seeds_data_and_changes():
    runs = cs.specs(["bp", "dfa@last1"], data=features(), seeds=[3], changes={"width": 8})
    assert [(run.method, run.seed, run.width, run.classes) for run in runs] == [("bp", 3, 8, 3), ("dfa@last1", 3, 8, 3)]
    assert runs[0].data == features().spec


def test_bad_names():
    with pytest.raises(BadInput, match="unknown preset"):
        cs.specs(preset="tiny")
    with pytest.raises(BadInput, match="no data set 'sintetic': did you mean 'synthetic'"):
        cs.specs(data="sintetic")
