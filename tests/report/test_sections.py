"""Cards, tables and sentences, each number found again in the JSONL files."""

import json

import numpy as np
import pytest
from protocol import cases
from report.cases import Page, richer

from creditscope.protocol.audit import audit
from creditscope.protocol.check import CheckText
from creditscope.protocol.evidence import Ruling
from creditscope.protocol.presets import NAMES, protocol_named
from creditscope.protocol.verdict import VerdictKind
from creditscope.report import render_report
from creditscope.report.labels import name_cells
from creditscope.report.sections import cards, check_sections, headline, usual_pair
from creditscope.report.text import SYMBOLS, VERDICT_SYMBOLS, VERDICT_TEXT


@pytest.fixture(scope="module")
def accuracies(folder):
    found = {}
    for path in sorted(folder.iterdir()):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found.setdefault(path.name.rsplit("-s", 1)[0], []).append(
            [row["test_accuracy"] for row in rows if row["kind"] == "epoch"][-1]
        )
    return found


def test_every_check_has_words_and_every_outcome_a_sign():
    for name in NAMES:
        for check in protocol_named(name).checks:
            said = type(check)
            assert check.text == CheckText(said.title, said.question, said.healthy, said.advice), check.name
            assert all((said.title, said.question, said.healthy, said.advice)), check.name
    assert set(SYMBOLS) == {str(ruling) for ruling in Ruling}
    assert set(VERDICT_SYMBOLS) == set(VERDICT_TEXT) == {str(kind) for kind in VerdictKind}


def test_the_verdict_comes_first(page):
    text = page.text
    places = [text.index(part) for part in ("2 claims judged: 1 trustworthy and 1 walked back.", "What the usual pair")]
    places += [text.index(check.text.question) for check in protocol_named("standard").checks if check.name != "ladder"]
    places += [text.index("A triangle marks"), text.index("Make this page again"), text.rindex("Skipped files")]
    assert places == sorted(places)


def test_cards_say_what_the_logs_hold(logs, accuracies):
    (_, made), *rest = cards(name_cells(audit(logs)))
    assert not rest
    assert [(card.label, card.verdict) for card in made] == [("bp", "trustworthy"), ("dfa-rms", "walked back")]
    for card in made:
        mean, sd = np.mean(accuracies[card.label]), np.std(accuracies[card.label], ddof=1)
        assert card.accuracy == f"{mean:.4f} ± {sd:.4f}"
    assert made[1].gamma == "+0.200"  # the mean of 0.4, 0.4, 0, 0
    assert [chip.name for chip in made[1].chips if chip.ruling == "fires"] == [
        "scale",
        "reference",
        "direction",
        "depth",
    ]


def test_a_card_is_told_apart_without_colour(page):
    assert "✓ trustworthy" in page.text
    assert "✕ walked back" in page.text


def test_the_usual_pair_would_have_accepted_the_collapsed_run(logs):
    said = usual_pair(name_cells(audit(logs)))
    assert said.endswith("accepted 2 of 2; of these, 1 is walked back here: dfa-rms.")
    healthy = usual_pair(name_cells(audit(cases.healthy("dfa"))))
    assert healthy.endswith("accepted 1 of 1; none of them is walked back here.")
    flipped = [cases.edit(log, lambda row: {"gamma": row.gamma.model_copy(update={"published": -0.1})}) for log in logs]
    assert usual_pair(name_cells(audit(flipped))).endswith("accepted 0 of 2.")


def test_the_headline_counts(logs):
    assert headline(name_cells(audit(logs))) == "2 claims judged: 1 trustworthy and 1 walked back."


def test_the_decision_table_of_the_page(page, accuracies):
    rows = {row["method"]: row for row in page.table("method", "accuracy alone")}
    shown = f"looks like learning\n{np.mean(accuracies['dfa-rms']):.4f}, chance 0.1000"
    assert rows["dfa-rms"]["accuracy alone"] == shown
    assert rows["dfa-rms"]["whole verdict"] == "✕ walked back"
    assert rows["bp"]["whole verdict"] == "✓ trustworthy"


def test_the_depth_table_of_the_page(page, accuracies):
    rows = {(row["method"], row["opponent"]): row for row in page.table("method", "accuracy", "opponent")}
    assert set(rows) == {(m, o) for m in ("bp", "dfa-rms") for o in (f"{m}@frozen", "bp@readout")}
    for (method, opponent), row in rows.items():
        assert row["accuracy"] == f"{np.mean(accuracies[method]):.4f}"
        assert row["its accuracy"] == f"{np.mean(accuracies[opponent]):.4f}"
        assert row["decides"] == ("yes" if opponent.endswith("@frozen") else "")


def test_the_scale_table_of_the_page(page, folder):
    rows = [row for row in page.table("method", "outcome", "seeds", "value", "threshold") if row["method"] == "dfa-rms"]
    growth = []
    for path in folder.glob("dfa-rms-s*"):
        last = [json.loads(line) for line in path.read_text().splitlines() if '"kind": "epoch"' in line][-1]
        growth.append(max(last["growth"]))
    assert rows[0]["value"] == f"{max(growth):.4g}×"
    assert rows[0]["outcome"] == "✕ fires"
    assert rows[0]["seeds"] == "3 of 3"
    assert rows[0]["fires since"] == "epoch 3"


def test_advice_stands_only_where_something_fires(logs):
    found = {section.name: section for section in check_sections(_named(logs))}
    text = Page(render_report(logs)).text
    assert [name for name, section in found.items() if section.fires] == ["scale", "reference", "direction", "depth"]
    for section in found.values():
        assert (section.text.advice in text) == section.fires


def test_what_would_settle_it_is_said(logs):
    alone = [log for log in logs if not log.spec.is_baseline]
    text = Page(render_report(alone)).text
    assert "To settle it: train bp@frozen with the same recipe and seeds" in text
    assert "What would settle it" in text


def test_phi_near_one_is_given_by_what_it_misses(logs):
    section = next(s for s in check_sections(_named(logs)) if s.name == "fidelity")
    assert section.numbers.rows[0][section.numbers.columns.index("value")] == "1 − 1.0e-14"


def test_the_deep_blocks_of_the_direction_check(logs):
    section = next(s for s in check_sections(_named(logs)) if s.name == "direction")
    assert [row[:2] for row in section.extra.rows] == [("dfa-rms", f"block {block}") for block in (1, 2, 3)]
    shown = {reading.label: reading.ruling for reading in section.readings}
    assert shown == {"bp": "not applicable", "dfa-rms": "fires"}


def test_the_published_protocol_has_its_three_checks(logs):
    names = [s.name for s in check_sections(_named(logs, "published"))]
    assert names == ["scale", "reference", "depth", "drift", "representation"]


def test_two_experiments_get_letters(logs):
    other = [richer(log) for log in cases.healthy("dfa", epochs=3)]
    page = Page(render_report([*logs, *other]))
    assert [group[:3] for group in page.data["groups"]] == ["A: ", "B: "]
    methods = [row["method"] for row in page.table("method", "accuracy alone")]
    assert methods == ["bp (A)", "dfa-rms (A)", "dfa (B)"]
    fired = {
        row["method"]
        for row in page.table("method", "seed", "fires since epoch")
        if "scale" in row["fires since epoch"]
    }
    assert fired == {"dfa-rms (A)"}


def test_a_check_that_applies_to_no_claim_is_named_and_left_out(page):
    assert "Not asked here: ladder: not asked of a rule of the signal family." in page.text
    assert not any("ladder" in plot["id"] for plot in page.data["plots"])
    assert ("section", "id", "check-ladder") not in page.attributes


def test_a_seed_that_fires_alone_is_counted_on_the_card(logs):
    """One seed above the threshold walks the method back, and the card says that it is one of three."""
    steep = [
        cases.edit(log, lambda row: {"growth": [60.0] * 4}) if log.spec.seed == 42 and log.spec.method == "bp" else log
        for log in logs
    ]
    (_, (card, *_)), *_ = cards(_named(steep))
    assert card.label == "bp"
    assert [(chip.ruling, chip.seeds) for chip in card.chips if chip.name == "scale"] == [("fires", "1 of 3")]
    assert {chip.seeds for chip in card.chips if chip.name != "scale"} == {""}


def test_a_card_names_the_opponent_that_decided_and_the_margin(logs):
    (_, made), *_ = cards(_named(logs))
    assert [(card.opponent, card.margin) for card in made] == [("bp@frozen", "26.3 pp"), ("dfa-rms@frozen", "-4.7 pp")]


def test_an_advisory_check_that_disagrees_stands_on_the_card_and_never_in_red():
    """Probe accuracy falls with depth, which is advice alone: the verdict stands, and the card says so."""
    logs = [cases.edit(log, probe_accuracy=[0.4, 0.38, 0.36, 0.33, 0.30]) for log in cases.healthy("dfa")]
    logs += cases.control()
    page = Page(render_report(logs))
    assert "representation (advisory) disagrees" in page.text
    section = next(s for s in check_sections(_named(logs)) if s.name == "representation")
    assert section.fires
    shown = [value for tag, name, value in page.attributes if (tag, name) == ("span", "class")]
    assert "tone hint" in shown
    assert "tone bad" not in shown


def test_one_seed_under_a_protocol_of_points_says_so(logs):
    alone = [log for log in logs if log.spec.seed == 42]
    assert [card.remarks for _, made in cards(_named(alone, "published")) for card in made] == [
        ("1 seed, point estimate",),
        ("1 seed, point estimate",),
    ]
    assert all(not card.remarks for _, made in cards(_named(logs, "published")) for card in made)


def test_what_the_audit_discloses_is_on_the_page(logs):
    plan = [log.spec for log in logs] + [cases.run("dfa", 7).spec]
    text = Page(render_report(audit(logs, thresholds={"scale": 40.0}).against(plan))).text
    said = text[text.index("What this audit discloses") : text.index("What the usual pair would have said")]
    # Two cells by learning and by depth at 2.5 % each, one by direction at 1 %: backprop is not asked.
    assert "0.05 of 2 by learning (2.5 % each), 0.01 of 1 by direction (1 % each) and 0.05 of 2 by depth" in said
    assert "thresholds set: scale=40 (was 50)" in said
    assert "cut into blocks by the model itself (2 cells)" in said
    assert f"of the {len(plan)} runs of the plan: missing dfa (seed 7)" in said
    bare = Page(render_report(logs)).text
    assert "no threshold was changed" in bare
    assert "no plan was declared, so that runs left out cannot be told" in bare


def _named(logs, protocol="standard"):
    return name_cells(audit(logs, protocol))
