"""Files: the same bytes twice, embedded fonts, the data beside the picture, and errors in one line."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from figures.cases import audit_suite, penalty_suite, run, runs, snapshot_suite

from creditscope.errors import BadInput
from creditscope.figures import ARTEFACTS, Drawn, check_request, draw_figure, write_figure
from creditscope.figures.table import COLUMNS

SUITES = {
    "hero": lambda: audit_suite(6),
    "penalty-rescue": penalty_suite,
    "penalty-sweep": penalty_suite,
    "snapshot": snapshot_suite,
    "survival": lambda: [*audit_suite(6), *penalty_suite()],
}


@pytest.mark.parametrize("name", SUITES)
def test_the_same_logs_give_the_same_bytes(name):
    first = draw_figure(name, SUITES[name]())
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": "other"}):
        second = draw_figure(name, SUITES[name]())
        for suffix in (".pdf", ".png", ".svg"):
            assert first.encode(suffix) == second.encode(suffix)
    assert first.table.to_csv() == second.table.to_csv()


def test_bytes_do_not_depend_on_the_process(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from figures.cases import audit_suite; from creditscope.figures import write_figure\n"
        "for s in ('pdf', 'svg', 'png'): write_figure('hero', audit_suite(4), Path(sys.argv[2]) / f'x.{s}')\n"
    )
    found = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        out.mkdir()
        tests = str(Path(__file__).parents[1])
        env = {**os.environ, "PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": seed}
        subprocess.run([sys.executable, "-c", script, tests, str(out)], check=True, env=env)
        found.append([(path.name, path.read_bytes()) for path in sorted(out.iterdir())])
    assert [name for name, _ in found[0]] == ["x.csv", "x.pdf", "x.png", "x.svg"]
    assert found[0] == found[1]


def test_pdf_embeds_truetype_and_carries_no_date(tmp_path):
    write_figure("hero", audit_suite(4), tmp_path / "x.pdf")
    data = (tmp_path / "x.pdf").read_bytes()
    assert b"/FontFile2" in data
    assert b"/Type3" not in data
    assert b"CreationDate" not in data
    assert re.search(rb"STIX", data)
    write_figure("hero", audit_suite(4), tmp_path / "x.svg")
    assert b"<dc:date>" not in (tmp_path / "x.svg").read_bytes()


@pytest.mark.parametrize("name", SUITES)
def test_csv_holds_every_value_with_its_logs(tmp_path, name):
    logs = SUITES[name]()
    drawn = write_figure(name, logs, tmp_path / "x.png")
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(drawn.table.points)
    known = {log.name for log in logs}
    for row, point in zip(rows, drawn.table.points, strict=True):
        for field in ("y", "low", "high"):
            value = getattr(point, field)
            assert row[field] == "" if value is None else float(row[field]) == value
        assert set(filter(None, row["logs"].split(";"))) <= known
        if point.y is not None and point.series != "floor":
            assert row["logs"]
    for panel in drawn.table.panels:
        assert any(row["panel"].startswith(panel.key) for row in rows)


def test_reader_settings_are_left_as_found():
    with matplotlib.rc_context({"font.size": 30}):
        before = {key: matplotlib.rcParams[key] for key in matplotlib.rcParams}
        draw_figure("hero", audit_suite(4)).encode(".png")
        assert {key: matplotlib.rcParams[key] for key in before} == before


def test_a_notebook_shows_the_picture():
    drawn = draw_figure("hero", [run("bp")])
    assert isinstance(drawn, Drawn)
    assert drawn._repr_png_().startswith(b"\x89PNG")
    assert drawn.warnings == drawn.table.warnings != ()


@pytest.mark.parametrize("name", ARTEFACTS)
def test_no_logs_is_one_line_and_no_file(tmp_path, name):
    with pytest.raises(BadInput, match=f"^{name}: nothing to draw from 0 logs: [^\n]+$"):
        write_figure(name, [], tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_a_log_without_epochs_is_named_in_the_error():
    log = run("bp")
    bare = log.__class__("bare.jsonl", log.header)
    with pytest.raises(BadInput, match="nothing to draw from 1 logs"):
        draw_figure("hero", [bare])
    assert "bare.jsonl holds no epoch and is left out" in draw_figure("hero", [bare, run("dfa-rms")]).warnings


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (("heros", "x.pdf", "two", "published"), "no figure is called 'heros'; did you mean 'hero'\\?"),
        (("hero", "x.doc", "two", "published"), "out= must end in one of .pdf, .png, .svg, got '.doc'"),
        (("hero", "x", "two", "published"), "got 'no suffix'"),
        (("hero", "x.pdf", "three", "published"), "width= wants one or two, got 'three'"),
        (("hero", "x.pdf", "two", "here"), "index= wants published or acts, got 'here'"),
        (("snapshot", "x.pdf", "two", "acts"), "index= is an option of hero only"),
        (("hero", "nowhere/x.pdf", "two", "published"), "there is no folder 'nowhere'"),
    ],
)
def test_bad_requests_are_refused(request_, message):
    name, out, width, index = request_
    with pytest.raises(BadInput, match=message):
        check_request(name, Path(out), width, index)


def test_unknown_artefact_in_the_library():
    with pytest.raises(BadInput, match="did you mean 'penalty-sweep'"):
        draw_figure("penalty-sweeps", runs("bp"))


def test_figures_import_no_torch():
    code = "import sys, creditscope.figures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
