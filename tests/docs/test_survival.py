"""The survival page is made from logs alone: the committed one from those of the zoo, the rest from made ones."""

import csv
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
from protocol.cases import ALIGNED, FROZEN, cell, control, edit, opponents

from creditscope.figures import draw_figure
from creditscope.protocol.audit import audit
from creditscope.protocol.survival import survival
from creditscope.records.load import load_logs
from creditscope.records.measured import Gamma

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_survival", ROOT / "docs" / "make_survival.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def logs():
    leaking = [replace(run, header=run.header.model_copy(update={"locality": False})) for run in cell("fa", ALIGNED)]
    easy = cell("bp", replace(FROZEN, accuracy=0.36), epochs=4) + cell("bp@frozen", FROZEN, epochs=4)
    dfa = [edit(run, lambda row: {"gamma": Gamma(deep=0.18)}) for run in cell("dfa", ALIGNED)]
    return [*dfa, *opponents("dfa"), *leaking, *cell("fa@frozen", FROZEN), *control(), *easy]


COSTS = {"resmlp on cifar10": {"bp": {"seconds": 2e-5, "bytes": 100}, "dfa": {"seconds": 3e-5, "bytes": 150}}}


def test_the_page_holds_every_claim_once_with_what_was_found(script, tmp_path):
    script.write(logs(), COSTS, tmp_path)
    page = (tmp_path / "survival.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    methods = [line.split("|")[2].strip() for line in lines if not line.startswith(("| tier", "| ---"))]
    assert sorted(methods) == ["bp", "bp", "dfa", "fa †"]
    (dfa,) = [line for line in lines if "| dfa |" in line]
    assert f"+{100 * (ALIGNED.accuracy - FROZEN.accuracy):.2f}" in dfa
    assert "dfa@frozen" in dfa
    assert "| +0.180 | 1.50× | 1.50× |" in dfa
    assert next(line for line in lines if "fa †" in line).count("not measured") == 3
    assert next(line for line in lines if "| bp |" in line).endswith("| exact | 1.00× | 1.00× |")
    assert "† A locality leak: blocks of fa move when later weights do." in page
    assert page.count("**This task cannot tell**: backprop gains") == 1
    assert page.count("This task tells: backprop gains") == 1
    for suffix in (".png", ".svg", ".pdf"):
        assert (tmp_path / "figures" / f"survival{suffix}").stat().st_size > 5000


def test_the_committed_page_is_what_the_committed_logs_give(script):
    runs = load_logs(script.RESULTS).logs
    contests = survival(audit(runs))
    assert (ROOT / "docs" / "survival.md").read_text(encoding="utf-8") == script.build(contests, {})
    assert (ROOT / "docs" / "survival.csv").read_text(encoding="utf-8") == script.to_csv(script.entries(contests, {}))
    assert sum(run.end.status == "finished" for run in runs) == len(runs)


def test_the_csv_holds_the_numbers_in_full(script):
    contests = survival(audit(logs()))
    rows = list(csv.DictReader(script.to_csv(script.entries(contests, COSTS)).splitlines()))
    assert len(rows) == sum(len(contest.survivors) for contest in contests) == 4
    (dfa,) = [row for row in rows if row["method"] == "dfa"]
    (found,) = [row for contest in contests for row in contest.survivors if row.cell.method == "dfa"]
    assert float(dfa["margin pp"]) == 100 * found.opponent.margin.mean
    assert float(dfa["low"]) == 100 * found.opponent.margin.low()
    assert (float(dfa["share"]), float(dfa["cosine"]), dfa["tier"]) == (found.share, found.cosine, str(found.tier))
    (grey,) = [row for row in rows if row["task tells"] == "False"]
    assert (grey["tier"], grey["share"]) == ("", "")


def test_the_figure_shows_tiers_greys_what_cannot_tell_and_names_the_leak():
    table = draw_figure("survival", logs()).table
    tells, grey = table.panels
    assert tells.caption == ""
    assert grey.caption.startswith("This task cannot tell: backprop itself gains +0.70 pp over its frozen twin")
    drawn = {point.x: point for point in table.of("a") if point.low is not None}
    assert set(drawn) == {"bp", "dfa", "fa †"}
    assert drawn["dfa"].note == "over dfa@frozen; tier 2"
    assert not [point for point in table.of("b") if point.quantity == "tier"]
    assert "†, a locality leak: blocks of fa move when later weights do." in table.notes
