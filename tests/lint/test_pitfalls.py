import re
from pathlib import Path

import pytest

from creditscope.errors import BadInput
from creditscope.lint import PITFALLS, lint_source, pitfall


@pytest.mark.parametrize("code", PITFALLS)
def test_each_example_shows_its_own_pitfall_and_nothing_else(code):
    assert {finding.code for finding in lint_source(PITFALLS[code].wrong)} == {code}
    assert lint_source(PITFALLS[code].right) == []


@pytest.mark.parametrize("code", PITFALLS)
def test_each_explanation_is_complete(code):
    text = PITFALLS[code].explain()
    assert text.startswith(f"{code}: ")
    for part in (PITFALLS[code].title, PITFALLS[code].why, PITFALLS[code].fix, "Wrong:", "Right:"):
        assert part in text


@pytest.mark.parametrize("code", PITFALLS)
def test_own_words_are_plain_ascii_and_print_on_any_terminal(code):
    texts = [PITFALLS[code].explain()]
    texts += [finding.message + finding.fix for finding in lint_source(PITFALLS[code].wrong)]
    assert [text for text in texts if not text.isascii()] == []


def test_the_page_in_the_documentation_lists_every_code_with_its_title():
    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text()
    rows = dict(re.findall(r"^\| `(CS\d+)` \| (.+?) \|", page, flags=re.MULTILINE))
    assert rows == {code: known.title for code, known in PITFALLS.items()}


def test_codes_are_in_order_and_found_in_any_case():
    assert list(PITFALLS) == [f"CS{number:03}" for number in range(1, len(PITFALLS) + 1)]
    assert pitfall(" cs002 ") is PITFALLS["CS002"]


def test_unknown_code_says_which_are_near():
    with pytest.raises(BadInput, match=r"wanted the code of a pitfall, got 'CS01'; did you mean 'CS001'"):
        pitfall("CS01")
