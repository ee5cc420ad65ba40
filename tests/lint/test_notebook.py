import json

import pytest

from creditscope.errors import BadFile
from creditscope.lint import lint_files
from creditscope.lint.notebook import read_notebook


def notebook(*cells):
    kinds = [{"cell_type": kind, "source": source} for kind, source in cells]
    return json.dumps({"cells": kinds, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})


def test_findings_carry_the_cell_and_its_own_line(tmp_path):
    path = tmp_path / "n.ipynb"
    path.write_text(
        notebook(
            ("markdown", "# t.norm(-1)"),
            ("code", ["import torch.nn.functional as F\n", "%matplotlib inline\n"]),
            ("code", "!pip list\n\nc = F.cosine_similarity(a, b)"),
            ("code", "n = t.norm(-1)"),
        )
    )
    report = lint_files([path])
    places = [(found.file.removeprefix(str(path)), found.line, found.code) for found in report.findings]
    assert places == [(":cell 2", 3, "CS002"), (":cell 3", 1, "CS001")]
    assert report.skipped == ()


def test_a_cell_that_is_not_python_is_named_and_the_others_linted(tmp_path):
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(("code", "def f(:"), ("code", "n = t.norm(-1)")))
    report = lint_files([path])
    assert [skipped.file for skipped in report.skipped] == [f"{path}:cell 1"]
    assert report.skipped[0].why.startswith("not Python: ")
    assert [found.file for found in report.findings] == [f"{path}:cell 2"]
    assert report.linted == (str(path),)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("%%bash\necho t.norm(-1)", ["", ""]),
        ("%%time\nn = 1", ["pass", "n = 1"]),
        ("if a:\n    %timeit f()", ["if a:", "    pass"]),
        ("x = (a\n% b)", ["x = (a", "% b)"]),
        ("", [""]),
    ],
)
def test_magic_lines_are_blanked(cell, text):
    read = read_notebook(notebook(("code", cell)), "n.ipynb")
    assert read.text.split("\n") == text
    assert read.places == tuple((1, line) for line in range(1, len(text) + 1))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', '{"cells": [3]}', '{"cells": [{}]}', "[" * 100_000])
def test_what_is_no_notebook_is_refused_in_one_line(text):
    with pytest.raises(BadFile, match=r"^n\.ipynb: not a notebook") as caught:
        read_notebook(text, "n.ipynb")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", [None, 3, [1, 2], {"a": 1}])
def test_a_cell_without_text_is_refused(source):
    with pytest.raises(BadFile, match="not a notebook"):
        read_notebook(notebook(("code", source)), "n.ipynb")
