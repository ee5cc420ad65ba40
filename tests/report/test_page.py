"""The file itself: one, closed to the outside, escaped, small, and made again by the command it names."""

import base64
import hashlib
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from protocol import cases
from report.cases import Page, suite

from creditscope.errors import BadInput, CannotWrite
from creditscope.protocol.audit import audit
from creditscope.records import HeaderRow, RunLog
from creditscope.records.load import Loaded, Skipped, load_logs
from creditscope.report import render_report, write_report

GOLDEN = Path(__file__).parents[1] / "golden"
HOSTILE = "<script>alert('x')</script>\"'&\u202e\u2028ünïcode 漢字 \x07" + "n" * 300
# Elements and attributes by which a page can reach out.
LOADERS = {"link", "img", "iframe", "object", "embed", "audio", "video", "source", "base", "svg"}


def policy(page):
    text = next(
        value for tag, name, value in page.attributes if (tag, name) == ("meta", "content") and "default" in value
    )
    return dict(part.strip().split(" ", 1) for part in text.split(";"))


def sha(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_names_exactly_the_script_and_the_style(page):
    rules = policy(page)
    runs = [text for attrs, text in page.scripts if attrs.get("type") != "application/json"]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [sha(text) for text in runs]
    assert rules["style-src"].split() == [sha(text) for _, text in page.styles]


def test_nothing_is_loaded_from_anywhere(page):
    assert not LOADERS & set(page.tags)
    assert {value[0] for _, name, value in page.attributes if name in ("href", "src", "action")} == {"#"}
    assert not any(name.startswith("on") or name == "style" for _, name, _ in page.attributes)
    css = page.styles[0][1]
    assert "@import" not in css
    assert "url(" not in css


def test_the_licence_of_the_plot_library_travels_with_it(page):
    script = next(text for attrs, text in page.scripts if "id" not in attrs)
    assert script.index("Permission is hereby granted, free of charge") < script.index("var uPlot=")


def test_every_link_leads_somewhere(page):
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    named = [value for _, name, value in page.attributes if name in ("aria-labelledby", "href")]
    assert {value.lstrip("#") for value in named} <= set(ids)


def test_headings_descend_by_one(page):
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_a_hostile_name_stays_text(logs):
    spec = logs[0].spec.model_copy(update={"rule": HOSTILE, "origin": "import"})
    hostile = replace(logs[0], name=f"{HOSTILE}.jsonl", header=HeaderRow(spec=spec), problems=(HOSTILE,))
    skipped = Skipped(f"folder/{HOSTILE}", HOSTILE)
    text = render_report(Loaded((hostile, *logs[1:]), (skipped,)), command=HOSTILE)
    page = Page(text)
    assert len(page.scripts) == 2
    assert "<script>alert" not in text
    assert any("<script>alert" in cell["label"] for cell in page.data["cells"])
    assert "<script>alert('x')</script>" in page.text
    # What could turn a line around or end a JavaScript line does not come through in a name.
    assert not any(char in cell["label"] for cell in page.data["cells"] for char in "\u202e\u2028\x07")


def test_thirty_runs_of_a_hundred_epochs_stay_under_3_mb(tmp_path):
    made = []
    for penalty in range(8):
        made += suite(epochs=100) if not penalty else cases.cell(f"dfa-rms+pen0.{penalty}", cases.ALIGNED, epochs=100)
    assert len(made) >= 30
    assert write_report(made, tmp_path / "report.html").stat().st_size < 3e6


def test_the_same_logs_give_the_same_bytes(logs):
    assert render_report(logs) == render_report(logs)


def test_a_command_that_was_not_given_names_the_logs_and_the_settings(logs):
    shown = Page(render_report(audit(logs, baseline=0.349, thresholds={"scale": 40.0}))).text
    words = shlex.split(re.search(r"creditscope report .*? --out=report.html", shown).group())
    assert sorted(word for word in words if word.endswith(".jsonl")) == sorted(log.name for log in logs)
    assert {"--set=scale=40.0", "--protocol=standard"} <= set(words)
    assert "--protocol=standard@1" in Page(render_report(logs, protocol="standard@1")).text


def test_skipped_files_and_notes_are_named_without_their_folder(logs):
    noted = replace(logs[0], problems=("a torn last line",))
    page = Page(render_report(Loaded((noted, *logs[1:]), (Skipped("some/folder/bad.json", "not JSON"),))))
    assert "bad.json : not JSON" in page.text
    assert "some/folder" not in page.text
    assert f"{noted.name}: a torn last line" in page.text


@pytest.mark.parametrize("protocol", ["standard", "published"])
def test_published_layouts_give_a_page(protocol):
    page = Page(render_report(audit(load_logs(GOLDEN / "published"), protocol, baseline=0.349)))
    assert "not measured" in page.text if protocol == "standard" else "walked back" in page.text


def test_a_log_without_any_row_gives_a_page_that_says_so(logs):
    bare = RunLog("bare.jsonl", logs[0].header)
    page = Page(render_report([bare]))
    assert "1 claim judged: 1 incomplete." in page.text
    assert page.data["runs"][0]["values"] == {}


def test_nothing_to_judge_is_an_error(logs):
    with pytest.raises(BadInput, match="nothing to judge"):
        render_report([log for log in logs if log.spec.is_baseline])


@pytest.mark.parametrize("name", ["report.pdf", "report"])
def test_a_suffix_that_means_nothing_is_refused(logs, tmp_path, name):
    with pytest.raises(BadInput, match=r"ends in \.html, \.md, \.tex, got 'report"):
        write_report(logs, tmp_path / name)


def test_a_folder_that_is_missing_is_named(logs, tmp_path):
    with pytest.raises(CannotWrite, match="no folder; give a file in a folder that exists"):
        write_report(logs, tmp_path / "missing" / "report.html")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(CannotWrite, match="is a folder"):
        write_report(logs, tmp_path / "report.html")
