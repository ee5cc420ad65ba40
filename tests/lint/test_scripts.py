"""Whole measuring scripts: one with every pitfall on marked lines, one without any."""

from pathlib import Path

from creditscope.lint import PITFALLS, lint_files

SCRIPTS = Path(__file__).parent / "scripts"


def marked(path):
    for number, line in enumerate(path.read_text().split("\n"), start=1):
        _, found, codes = line.partition("#! ")
        if found and codes.startswith("CS"):
            yield from ((number, code) for code in codes.split())


def test_careless_script_has_exactly_the_marked_pitfalls():
    path = SCRIPTS / "careless.py"
    report = lint_files([path])
    assert [(finding.line, finding.code) for finding in report.findings] == sorted(marked(path))
    assert {finding.code for finding in report.findings} == set(PITFALLS)


def test_careful_script_has_none():
    assert lint_files([SCRIPTS / "careful.py"]).findings == ()
