"""Which runs are repetitions, which are baselines, and which match."""

from dataclasses import replace

import pytest
from cases.specs import spec
from protocol import cases

from creditscope.errors import BadInput
from creditscope.protocol.facts import Assumptions
from creditscope.protocol.matching import build_cells, match_key
from creditscope.records import HeaderRow, OptimiserSpec, RuleCard, RunLog


def cells(logs, baseline=None):
    return build_cells(logs, baseline, Assumptions())


def claim(logs, baseline=None):
    (found,) = [cell for cell in cells(logs, baseline) if cell.role == "claim"]
    return found


def test_runs_that_differ_only_in_seed_form_one_cell():
    found = cells(
        [
            *cases.cell("dfa", cases.ALIGNED),
            *cases.cell("dfa-rms", cases.COLLAPSED),
            *cases.cell("bp@frozen", cases.FROZEN),
        ]
    )
    assert [(cell.method, cell.role, cell.seeds) for cell in found] == [
        ("dfa", "claim", (42, 123, 456)),
        ("dfa-rms", "claim", (42, 123, 456)),
        ("bp@frozen", "baseline", (42, 123, 456)),
    ]


def test_the_matched_baseline_has_the_same_rule_and_norm():
    frozen = [log for m in ("bp", "dfa", "dfa-rms", "fa") for log in cases.cell(f"{m}@frozen", cases.FROZEN)]
    for method in ("bp", "dfa", "dfa-rms", "fa"):
        assert claim([*cases.cell(method, cases.ALIGNED), *frozen]).baseline.method == f"{method}@frozen"


def test_the_penalty_is_ignored_for_local_rules_and_must_agree_for_bp():
    frozen = [*cases.cell("dfa@frozen", cases.FROZEN), *cases.cell("bp@frozen", cases.FROZEN)]
    assert claim([*cases.cell("dfa+pen0.01", cases.ALIGNED), *frozen]).baseline.method == "dfa@frozen"
    alone = claim([*cases.cell("bp+pen0.01", cases.BP), *frozen])
    assert alone.baseline is None
    assert "differs in penalty" in alone.why_no_baseline
    own = claim([*cases.cell("bp+pen0.01", cases.BP), *frozen, *cases.cell("bp+pen0.01@frozen", cases.FROZEN)])
    assert own.baseline.method == "bp+pen0.01@frozen"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 7),
        ("width", 128),
        ("depth", 3),
        ("batch", 64),
        ("schedule", "constant"),
        ("augment", "none"),
        ("optimiser", OptimiserSpec(lr=0.01)),
        ("terminal_ln", False),
    ],
)
def test_a_twin_of_another_recipe_does_not_match_and_the_difference_is_named(field, value):
    found = claim([*cases.cell("dfa", cases.ALIGNED), *cases.cell("dfa@frozen", cases.FROZEN, **{field: value})])
    assert found.baseline is None
    assert f"differs in {field}" in found.why_no_baseline


def test_the_twin_of_another_rule_never_decides():
    found = claim([*cases.cell("dfa", cases.ALIGNED), *cases.cell("bp@frozen", cases.FROZEN)])
    assert found.baseline is None
    assert "differs in rule" in found.why_no_baseline
    given = claim(cases.cell("dfa", cases.ALIGNED), cases.cell("bp@frozen", cases.FROZEN))
    assert given.baseline is None


def test_unfinished_runs_never_match():
    frozen = [replace(log, end=None) for log in cases.cell("dfa@frozen", cases.FROZEN)]
    found = claim([*cases.cell("dfa", cases.ALIGNED), *frozen])
    assert found.baseline is None
    assert "unfinished" in found.why_no_baseline
    assert (
        len(
            claim(
                [*cases.cell("dfa", cases.ALIGNED), *frozen[:1], *cases.cell("dfa@frozen", cases.FROZEN)[1:]]
            ).baseline.runs
        )
        == 2
    )


def test_readout_runs_are_baselines_but_no_twins():
    found = claim([*cases.cell("dfa", cases.ALIGNED), *cases.cell("dfa@readout", cases.FROZEN)])
    assert found.baseline is None
    assert [run.spec.method for run in found.related.readout] == ["dfa@readout"] * 3


def test_a_partly_trained_net_is_a_claim():
    assert claim(cases.cell("dfa@last2", cases.ALIGNED)).method == "dfa@last2"


def test_given_baselines_must_be_frozen():
    with pytest.raises(BadInput, match="wants runs whose blocks are frozen"):
        cells(cases.cell("dfa", cases.ALIGNED), cases.cell("dfa", cases.ALIGNED))


def test_a_baseline_that_stands_in_both_lists_is_counted_once():
    frozen = cases.cell("dfa@frozen", cases.FROZEN)
    again = cases.cell("dfa@frozen", cases.FROZEN)
    found = cells([*cases.cell("dfa", cases.ALIGNED), *frozen], again)
    assert [cell.method for cell in found] == ["dfa", "dfa@frozen"]
    assert len(found[0].baseline.runs) == 3


def imported(log, train_last):
    spec = log.spec.model_copy(update={"origin": "import", "model": None, "optimiser": None, "train_last": train_last})
    return replace(log, header=log.header.model_copy(update={"spec": spec}))


def test_a_given_imported_log_is_a_baseline_by_the_users_word_and_a_proxy():
    ours = [imported(log, None) for log in cases.cell("dfa", cases.ALIGNED)]
    theirs = [imported(log, None) for log in cases.cell("dfa", cases.FROZEN, seeds=(1, 2, 3))]
    found = cells(ours, theirs)
    assert [cell.role for cell in found] == ["claim", "baseline"]
    assert found[0].baseline.unknown == ("model", "optimiser")
    assert not found[0].baseline.matched


def test_a_penalty_of_the_global_loss_must_agree_with_the_twin_whatever_the_rule_is_called():
    def key(method, penalty_kind):
        run = spec(method).model_copy(update={"rule": "outside"})
        return match_key(RunLog("a.jsonl", HeaderRow(spec=run, rule=RuleCard(name="outside", penalty=penalty_kind))))

    assert key("dfa+pen0.1", "global") != key("dfa@frozen", "global")
    assert key("dfa+pen0.1", "global") == key("dfa+pen0.1@frozen", "global")
    assert key("dfa+pen0.1", "local") == key("dfa@frozen", "local")
