"""One table in four forms; nothing in a cell can break out of it."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from creditscope.records.table import Table, latex, markdown, visible

TABLE = Table(("method", "value"), (("dfa_rms", "1.5×"), ("a|b\nc", "50 %")), ("left", "right"), "Title & all")


def test_text_is_aligned():
    assert TABLE.to_text().splitlines() == [
        "Title & all",
        "method   value",
        "-------  -----",
        "dfa_rms   1.5×",
        "",
        "a|b       50 %",
        "c",
    ]


def test_markdown_escapes_and_aligns():
    assert TABLE.to_markdown().splitlines() == [
        "**Title &amp; all**",
        "",
        "| method | value |",
        "| --- | ---: |",
        r"| dfa\_rms | 1.5× |",
        r"| a\|b<br>c | 50 % |",
    ]


def test_latex_has_booktabs_rules_and_escapes():
    assert TABLE.to_latex().splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Title \& all}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"method & value \\",
        r"\midrule",
        r"dfa\_rms & 1.5$\times$ \\",
        r"a\textbar{}b c & 50 \% \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_html_escapes():
    page = Table(("<b>",), (("<script>alert('x')</script>",),)).to_html()
    assert "<script" not in page
    assert "<th>&lt;b&gt;</th>" in page


def test_a_notebook_shows_the_html():
    table = Table(("a",), (("b",),))
    assert table._repr_html_() == table.to_html()


def test_wrapping_keeps_words_whole_while_it_can():
    table = Table(("what", "why"), (("reference", "the norm of the gradient is small"),))
    assert table.least_width == len("reference") + 2 + len("gradient")
    lines = table.to_text(width=24).splitlines()
    assert max(map(len, lines)) <= 24
    assert "gradient" in " ".join(lines)
    assert "".join(" ".join(line[11:] for line in lines[2:]).split()) == "thenormofthegradientissmall"


def test_a_ragged_row_is_an_error():
    with pytest.raises(ValueError, match="1 cells in a table of 2 columns"):
        Table(("a", "b"), (("1",),))


def test_a_terminal_cannot_be_steered():
    assert "\x1b" not in Table(("m",), (("\x1b[31mred\x07",),)).to_text()
    assert visible("a\x1b[2J") == "a�[2J"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)


@given(cell=st.text(max_size=40))
def test_no_cell_breaks_out(cell):
    table = Table(("h",), ((cell,), ("end",)))
    reader = Reader()
    reader.feed(table.to_html())
    assert set(reader.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "br"}
    assert reader.tags.count("tr") == 3
    assert len(table.to_markdown().splitlines()) == 4
    assert not re.search(r"(?<!\\)\|", markdown(cell))
    plain = latex(cell)
    assert plain.count("{") - plain.count(r"\{") == plain.count("}") - plain.count(r"\}")
    assert not re.search(r"(?<!\\)[&%#_]", plain)
    assert len(table.to_latex().splitlines()) == 8
