"""Recipe and provenance as the logs state them."""

from dataclasses import replace

from protocol import cases

from creditscope.protocol.audit import audit
from creditscope.protocol.present import runs_table
from creditscope.records import RunSpec
from creditscope.report.labels import name_cells
from creditscope.report.recipe import entry, provenance_table, recipe_table


def test_the_recipe_of_one_experiment(logs):
    rows = dict(recipe_table(name_cells(audit(logs))).rows)
    assert rows["model"] == "resmlp"
    assert rows["epochs"] == "5"
    assert rows["terminal ln"] == "yes"
    assert rows["optimiser"].startswith("adamw, lr ")


def test_each_experiment_has_a_column():
    logs = [*cases.healthy("bp"), *cases.healthy("bp", epochs=3)]
    table = recipe_table(name_cells(audit(logs)))
    assert len(table.columns) == 3
    assert sorted(next(row for row in table.rows if row[0] == "epochs")[1:]) == ["3", "5"]


def test_what_a_spec_does_not_say(logs):
    assert entry(logs[0].spec.model_copy(update={"width": None}), "width") == "not stated"


def test_every_run_is_listed_with_its_log(logs):
    table = runs_table(name_cells(audit(logs)).audit)
    assert sorted(row[-1] for row in table.rows) == sorted(log.name for log in logs)
    assert {row[0] for row in table.rows} == {log.spec.method for log in logs}


def test_logs_of_one_name_keep_their_own_method(logs):
    table = runs_table(name_cells(audit([replace(log, name="log.jsonl") for log in logs])).audit)
    assert sorted(row[0] for row in table.rows) == sorted(log.spec.method for log in logs)


def test_runs_made_alike_share_a_row(logs):
    def made(log, torch, when):
        return replace(log, header=log.header.model_copy(update={"provenance": {"torch": torch}, "time_created": when}))

    mixed = [made(log, "2.11" if i else "2.12", f"2026-01-0{1 + i % 3}") for i, log in enumerate(logs)]
    table = provenance_table(name_cells(audit(mixed)))
    rows = {row[1]: row for row in table.rows}
    assert rows["torch 2.12"][0] == "1"
    assert rows["torch 2.11"][0] == str(len(logs) - 1)
    assert rows["torch 2.11"][2] == "2026-01-01 to 2026-01-03"


def test_what_an_owner_says_of_a_run_is_shown():
    told = RunSpec(rule="mine", origin="watch", terminal_ln=False, recipe={"optimiser": "SGD lr=0.1"})
    said = [entry(told, field) for field in ("optimiser", "schedule", "terminal_ln")]
    assert said == ["SGD lr=0.1", "not stated", "no"]
