"""From a sweep spec to runs: against plain loops."""

from itertools import product
from pathlib import Path

import pytest

from creditscope.errors import BadFile
from creditscope.plans.grid import expand
from creditscope.plans.spec_file import parse_spec, read_spec
from creditscope.records import DataSpec

EXAMPLES = Path(__file__).parents[2] / "examples" / "sweeps"
IMAGES = DataSpec(name="cifar10", hash_train="a", hash_test="b", shape=(3, 32, 32), n_train=50_000, n_test=10_000)


def runs_of(text, data=IMAGES):
    spec = parse_spec("x.yaml", text)
    return expand(spec, {name: (data.model_copy(update={"name": name}), 10) for name in spec.data})


def test_a_grid_is_the_product_of_its_axes():
    runs = runs_of("methods: [bp, dfa]\nseeds: [1, 2]\ngrid: {penalty: [0, 1e-2], depth: [2, 4], train_last: [1, all]}")
    wanted = {
        (rule, seed, penalty, depth, last)
        for rule, seed, penalty, depth, last in product(("bp", "dfa"), (1, 2), (0.0, 0.01), (2, 4), (1, "all"))
    }
    assert {(r.rule, r.seed, r.penalty, r.depth, r.train_last) for r in runs} == wanted
    assert len(runs) == len({run.run_id for run in runs}) == len(wanted)


def test_a_list_is_the_union_of_its_entries_each_run_once():
    text = "seeds: [1]\nruns:\n  - methods: [bp, dfa]\n  - methods: [dfa, fa]\n  - methods: [bp]\n    set: {depth: 2}"
    assert [(r.method, r.depth) for r in runs_of(text)] == [("bp", 4), ("dfa", 4), ("fa", 4), ("bp", 2)]


def test_settings_reach_every_part_of_a_spec():
    text = (
        "methods: [bp]\nseeds: [7]\nset: {lr: 1e-3, probe.n: 64, terminal_ln: no, schedule: constant, weight_decay: 0}"
    )
    (run,) = runs_of(text)
    assert (run.optimiser.lr, run.optimiser.weight_decay, run.probe.n) == (1e-3, 0.0, 64)
    assert (run.terminal_ln, run.schedule, run.seed) == (False, "constant", 7)


def test_several_data_sets():
    runs = runs_of("methods: [bp]\nseeds: [1]\ndata: [fashion-mini, cifar10]")
    assert [run.data.name for run in runs] == ["fashion-mini", "cifar10"]


def test_a_changed_setting_is_another_run():
    one, two = (runs_of(f"methods: [bp]\nseeds: [1]\nset: {{lr: {lr}}}")[0] for lr in (1e-3, 2e-3))
    assert one.run_id != two.run_id


def test_values_that_do_not_go_together_are_refused_with_their_line():
    with pytest.raises(BadFile) as caught:
        runs_of("seeds: [1]\nruns:\n  - methods: [bp]\n    grid: {depth: [4, 2], train_last: [3]}")
    assert "x.yaml: line 3: at depth=2, train_last=3: " in str(caught.value)
    assert "wanted 0 to 2 blocks" in str(caught.value)
    assert "--set" not in str(caught.value)


def test_the_full_grid():
    runs = expand(read_spec(EXAMPLES / "full-grid.yaml"), {"cifar10": (IMAGES, 10)})
    rules = [*((rule, "none") for rule in ("bp", "fa", "fa-exact-head", "fa-block", "dfa")), ("dfa", "rms")]
    penalties, seeds = (0.0, 1e-4, 1e-3, 1e-2, 1e-1), (42, 123, 456)
    wanted = set()
    for arch in (("resmlp", True), ("resmlp", False), ("vit-mini", True)):
        for seed in seeds:
            for (rule, norm), penalty, last in product(rules, penalties, (1, 2, 3, "all")):
                wanted.add((arch, rule, norm, penalty, last, True, seed))
            for rule, norm in rules:
                for penalty in penalties if rule == "bp" else (0.0,):
                    wanted.add((arch, rule, norm, penalty, 0, True, seed))
            wanted.add((arch, "bp", "none", 0.0, 0, False, seed))
    found = [
        (
            (r.model, r.terminal_ln),
            "fa-exact-head" if r.options else r.rule,
            r.credit_norm,
            r.penalty,
            r.train_last,
            r.train_embedding,
            r.seed,
        )
        for r in runs
    ]
    assert set(found) == wanted
    assert len(found) == len(wanted) == 3 * 3 * (6 * 5 * 4 + 5 + 5 + 1) == 1179
    assert {(r.model, r.epochs, r.depth) for r in runs} == {("resmlp", 100, 4), ("vit-mini", 30, 4)}
    assert "1,179 runs" in (EXAMPLES / "full-grid.yaml").read_text()


def test_every_run_of_the_full_grid_has_its_matched_baseline():
    runs = expand(read_spec(EXAMPLES / "full-grid.yaml"), {"cifar10": (IMAGES, 10)})
    twins = {(run.match_key, run.seed) for run in runs if run.is_baseline and run.train_embedding}
    assert all((run.match_key, run.seed) in twins for run in runs)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_sound(path):
    spec = read_spec(path)
    assert expand(spec, dict.fromkeys(spec.data, (IMAGES, 10)))
