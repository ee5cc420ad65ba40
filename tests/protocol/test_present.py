"""The audit as people read it: on a terminal, in a review, in a paper."""

from pathlib import Path

import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.present import render, sections

GOLDEN = Path(__file__).parents[1] / "golden" / "published"


@pytest.fixture(scope="module")
def golden():
    return audit(GOLDEN, "published", baseline=0.349)


@pytest.fixture(scope="module")
def mixed():
    logs = [
        *cases.healthy("dfa"),
        *cases.healthy("bp"),
        *cases.cell("dfa-rms", cases.COLLAPSED),
        *cases.cell("dfa-rms@frozen", cases.FROZEN),
    ]
    return audit(logs)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(golden, mixed, width):
    for audited in (golden, mixed):
        everything = sections(audited, decisions=True, sensitivity=True)
        lines = render(everything, "table", width).splitlines()
        assert max(map(len, lines)) <= width


def test_every_claim_check_and_verdict_is_named(mixed):
    for text in (mixed.to_text(), mixed.to_text(60), mixed.to_markdown(), mixed.to_latex()):
        for word in ("dfa-rms", "bp", "scale", "direction", "walked back", "trustworthy"):
            assert word in text


def test_order_verdict_reasons_settle_runs_time(golden):
    text = golden.to_text()
    titles = ["Protocol published, version 1; 5 cells judged", "Why", "What would settle it", "Runs", "Over time"]
    places = [text.index(f"{title}\n") for title in titles]
    assert places == sorted(places)


def test_each_number_stands_beside_its_log(golden):
    text = golden.to_text()
    for name in ("snapshot_evolution_s42.json#dfa_log", "dfa_pen_lam0.01_s42.json"):
        assert name in text
    assert "read from the file name, since the content does not say: rule, penalty, seed" in " ".join(text.split())


def test_the_same_measurement_is_asked_for_once(golden):
    text = " ".join(golden.to_text().split())
    assert text.count("depth: train dfa@frozen") == 1
    assert "(for dfa+pen0.0001, dfa+pen0.01, dfa+pen0.1 and dfa)" in text


def test_what_was_set_and_assumed_is_in_the_heading():
    audited = audit(GOLDEN, "published", 0.349, {"scale": 40}, {"blocks": 4, "h0": 9})
    assert audited.to_text(200).splitlines()[0] == (
        "Protocol published, version 1; 5 cells judged; thresholds set: scale=40 (was 50); assumed: blocks=4, h0=9"
    )


def test_decisions_and_sensitivity_are_there_on_request(golden):
    plain, full = sections(golden), sections(golden, decisions=True, sensitivity=True)
    assert len(full) == len(plain) + 3
    text = render(full, "table", 120)
    assert "accuracy and Γ" in text
    assert "verdict stays for" in text
    assert "healthiest failing" in text


def test_latex_is_a_table_that_compiles_by_shape(mixed):
    lines = render(sections(mixed), "latex").splitlines()
    rows = [line for line in lines if line.endswith(r"\\")]
    columns = {line.count("&") - line.count(r"\&") for line in rows}
    assert all(rule in lines for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    assert len(columns) >= 1
    assert "×" not in "".join(lines)
    assert "‖" not in "".join(lines)


def test_a_name_in_a_log_cannot_break_the_page():
    from dataclasses import replace

    log = cases.run()
    spec = log.spec.model_copy(update={"rule": "a|b\n<script>\x1b[2J", "origin": "import"})
    audited = audit([replace(log, header=log.header.model_copy(update={"spec": spec}))])
    assert "\x1b" not in audited.to_text()
    assert "<script" not in audited.to_markdown()
    assert "<script" not in audited._repr_html_()
