"""Sweep specs: what is read, and every mistake named with its line and key."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.errors import BadFile, CreditscopeError
from creditscope.plans.presets import PRESETS
from creditscope.plans.spec_file import parse_spec


def test_defaults_are_the_presets():
    (part,) = parse_spec("x.yaml", "preset: audit").parts
    assert (part.methods, part.seeds, part.data) == (PRESETS["audit"].methods, PRESETS["audit"].seeds, ("cifar10",))


def test_an_entry_inherits_and_changes():
    text = """\
seeds: [1]
set: {epochs: 5, depth: 2}
grid: {width: [8, 16]}
runs:
  - methods: [bp]
  - methods: [dfa]
    seeds: [2, 3]
    set: {width: 32}
    grid: {depth: [2, 4]}
"""
    first, second = parse_spec("x.yaml", text).parts
    assert (first.methods, first.seeds) == (("bp",), (1,))
    assert first.axes == {"epochs": (5,), "depth": (2,), "width": (8, 16)}
    assert (second.methods, second.seeds) == (("dfa",), (2, 3))
    assert second.axes == {"epochs": (5,), "depth": (2, 4), "width": (32,)}
    assert (first.size, second.size) == (2, 4)
    assert (first.line, second.line) == (5, 6)


BAD = {
    "key": ("preset: demo\ngird: {}", "line 2: gird: no such key; did you mean 'grid'"),
    "key of an entry": ("runs:\n  - methods: [bp]\n    sets: {}", "line 3: runs.0.sets: no such key; did you mean"),
    "runs in runs": ("runs:\n  - runs: []", "line 2: runs.0.runs: no such key"),
    "key that would steer a terminal": ('"\\x1b[2J\\nx": 1', "line 1: �[2J�x: no such key"),
    "setting": ("set:\n  epochs: 3\n  dpeth: 4", "line 3: set.dpeth: no such setting; did you mean 'depth'"),
    "axis": ("grid:\n  wdth: [4]", "line 2: grid.wdth: no such setting; did you mean 'width'"),
    "preset": ("\npreset: dmeo", "line 2: preset: unknown preset 'dmeo'; did you mean 'demo'"),
    "method": ("methods:\n  - bp\n  - dfq", "line 3: methods.1: unknown rule 'dfq'"),
    "method of an entry": ("runs:\n  - methods: [bp, bq]", "line 2: runs.0.methods.1: unknown rule 'bq'"),
    "value": ("set: {epochs: 3,\n      depth: -1}", "line 2: set.depth: -1: depth: Input should be greater than 0"),
    "value of an axis": ("grid:\n  lr: [1e-3, fast]", "line 2: grid.lr: 'fast': "),
    "flag": ("set: {depth: true}", "line 1: set.depth: wanted no true or false, got true"),
    "model": ("set: {model: resmpl}", "line 1: set.model: unknown model 'resmpl'; did you mean 'resmlp'"),
    "model of another kind": ("set: {model: [1]}", "line 1: set.model: unknown model [1]"),
    "penalty": ("grid: {penalty: [0, -1]}", "line 1: grid.penalty: wanted a penalty of 0 or more, such as 1e-2, got"),
    "penalty nan": ("grid: {penalty: [.nan]}", "grid.penalty: wanted a penalty"),
    "penalty null": ("grid: {penalty: [null]}", "grid.penalty: wanted a penalty"),
    "ladder": ("grid: {train_last: [-1]}", "line 1: grid.train_last: wanted how many of the last blocks train"),
    "ladder word": ("grid: {train_last: [frozen]}", "wanted how many of the last blocks train (0, 1, …) or all"),
    "said twice": ("methods: [bp, dfa+pen0.1]\ngrid: {penalty: [0]}", "line 1: methods.1: method 'dfa+pen0.1' says"),
    "ladder twice": ("methods: [bp@last1]\nset: {train_last: 1}", "line 1: methods.0: method 'bp@last1' says"),
    "said by the preset": ("preset: demo\ngrid: {penalty: [0]}", "line 2: grid.penalty: method 'bp+pen0.01' "),
    "set and grid": ("set: {depth: 2}\ngrid:\n  depth: [4]", "line 3: grid.depth: stands under set too; keep one"),
    "empty axis": ("grid: {depth: []}", "line 1: grid.depth: an empty list of values; give at least one"),
    "no list": ("grid: {depth: 4}", "line 1: grid.depth: input should be a valid list"),
    "no seeds": ("seeds: []", "line 1: seeds: list should have at least 1 item"),
    "seed": ("seeds:\n  - 1\n  - x", "line 3: seeds.1: input should be a valid integer"),
    "no data": ("data: []", "line 1: data: an empty list"),
    "data": ("data: {a: 1}", "line 1: data: input should be a valid"),
    "no mapping": ("- bp", "line 1: wanted keys such as preset"),
    "too many": (
        "grid:\n  depth: ["
        + ", ".join(map(str, range(1, 200)))
        + "]\n  width: ["
        + ", ".join(map(str, range(1, 200)))
        + "]",
        "runs are more than 100000; split the sweep",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_mistakes_name_line_and_key(text, message):
    with pytest.raises(BadFile) as caught:
        parse_spec("x.yaml", text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--set" not in str(caught.value)


keys = st.sampled_from(["preset", "methods", "seeds", "data", "set", "grid", "runs", "depth", "penalty", "lr", "x"])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["demo", "bp", "dfa", "all", "1e-3"])
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3), max_leaves=10
)


def single_line(error):
    assert "\n" not in str(error)


@settings(max_examples=200)
@given(st.dictionaries(keys, trees, max_size=4))
def test_any_document_is_read_or_refused(value):
    try:
        spec = parse_spec("x.yaml", yaml.safe_dump(value))
    except CreditscopeError as error:
        single_line(error)
        return
    assert spec.parts


def test_options_of_a_model_and_of_an_optimiser_may_be_set_and_varied():
    sweep = parse_spec("a.yaml", "set: {model: mlp}\ngrid: {model.activation: [relu, tanh]}\n")
    assert sweep.parts[0].axes["model.activation"] == ("relu", "tanh")
    sgd = parse_spec("a.yaml", "set: {optimiser.name: sgd}\ngrid: {momentum: [0, 0.9]}\n")
    assert sgd.parts[0].axes["momentum"] == (0, 0.9)
    with pytest.raises(BadFile, match=r"line 1: set.momentum: 0.9: .*adamw has no momentum"):
        parse_spec("a.yaml", "set: {momentum: 0.9}\n")
    with pytest.raises(BadFile, match=r"line 1: set.model.activation: .tanh.: resmlp has no such option"):
        parse_spec("a.yaml", "set: {model.activation: tanh}\n")
