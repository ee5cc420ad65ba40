import json
import os
from pathlib import Path

import pytest

from creditscope.errors import BadFile
from creditscope.lint import PITFALLS, Finding, LintReport, Skipped, lint_files, lint_source
from creditscope.lint.source import MAX_BYTES

WRONG = "n = t.norm(-1)\n"


def test_finding_has_place_message_and_fix():
    (finding,) = lint_source("def f(t):\n    return t.norm(-1)\n", "a.py")
    assert (finding.file, finding.line, finding.column, finding.code) == ("a.py", 2, 12, "CS001")
    assert str(finding).startswith("a.py:2:12 CS001 `norm` takes -1 in this place as the order")
    assert finding.fix == "name the axis: `dim=-1`"


def test_column_counts_characters_not_bytes():
    (finding,) = lint_source("ρ, β = 0, t.norm(-1)")
    assert finding.column == 11


def test_findings_are_in_order_of_line():
    source = "import torch.nn.functional as F\nc = F.cosine_similarity(g, g)\nn = g.norm(-1)\n"
    assert [(found.line, found.code) for found in lint_source(source)] == [(2, "CS002"), (2, "CS006"), (3, "CS001")]


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("# creditscope: ignore[CS001]", 0),
        ("#creditscope:ignore[cs002, CS001]  # why", 0),
        ("# noqa  # creditscope: ignore[CS001]", 0),
        ("# creditscope: ignore[CS002]", 1),
        ("# creditscope: ignore[]", 1),
        ("# creditscope: ignore", 1),
        ("# ignore[CS001]", 1),
    ],
)
def test_a_comment_on_the_line_silences_the_named_code_only(comment, left):
    assert len(lint_source(f"n = t.norm(-1)  {comment}\n")) == left


def test_a_comment_on_the_last_line_of_the_expression_counts_and_on_the_next_does_not():
    assert lint_source("n = t.norm(\n    -1\n)  # creditscope: ignore[CS001]\n") == []
    assert len(lint_source("n = t.norm(-1)\n# creditscope: ignore[CS001]\n")) == 1


def test_unparsable_source_is_refused():
    with pytest.raises(BadFile, match=r"^b\.py: not Python: "):
        lint_source("x = (", "b.py")


def test_bad_files_are_named_and_the_others_linted(tmp_path):
    contents = {
        "a_good.py": WRONG.encode(),
        "b_syntax.py": b"def f(:\n",
        "c_null.py": b"x = 1\0\n",
        "d_latin.py": "n = 'é'".encode("latin-1"),
        "e_deep.py": b"x = " + b"(" * 500,
        "f_deep.py": b"x = " + b"-" * 100_000 + b"1",
        "g_huge.py": b"#" * (MAX_BYTES + 1),
        "h_notebook.ipynb": b"[1, 2]",
        "i_bom.py": b"\xef\xbb\xbf" + WRONG.encode(),
        "j_empty.py": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    missing = tmp_path / "missing.py"
    report = lint_files([tmp_path, missing])
    assert [Path(name).name[0] for name in report.linted] == ["a", "i", "j"]
    assert [(Path(found.file).name[0], found.code) for found in report.findings] == [("a", "CS001"), ("i", "CS001")]
    reasons = {Path(skipped.file).name[:3]: skipped.why for skipped in report.skipped}
    expected = {
        "b_s": "not Python: ",
        "c_n": "not Python: source code string cannot contain null bytes",
        "d_l": "not UTF-8 (byte 5)",
        "e_d": "not Python: too many nested parentheses",
        "f_d": "nested too deeply",
        "g_h": "larger than 5000000 bytes",
        "h_n": "not a notebook",
        "mis": "cannot be read (No such file or directory)",
    }
    assert set(reasons) == set(expected)
    for key, start in expected.items():
        assert reasons[key].startswith(start)
        assert "\n" not in reasons[key]


def test_folders_are_walked_without_hidden_folders_caches_and_environments(tmp_path):
    for place in ("a.py", "pkg/b.py", "pkg/notes.txt", ".git/c.py", "__pycache__/d.py", "env/lib/e.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(WRONG)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    report = lint_files([tmp_path])
    assert report.linted == (str(tmp_path / "a.py"), str(tmp_path / "pkg" / "b.py"))


def test_a_file_given_twice_is_linted_once(tmp_path):
    (tmp_path / "a.py").write_text(WRONG)
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    report = lint_files([tmp_path / "a.py", tmp_path, str(tmp_path / "a.py")])
    assert len(report.findings) == len(report.linted) == 1


def test_what_is_no_python_is_named(tmp_path):
    (tmp_path / "log.jsonl").write_text("{}")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    report = lint_files([tmp_path / "log.jsonl", tmp_path / "empty", tmp_path / "pipe.py", "nul\0.py"])
    assert report.linted == ()
    assert [skipped.why.split(";")[0] for skipped in report.skipped] == [
        "wanted a .py file, an .ipynb notebook or a folder",
        "holds no .py file and no .ipynb notebook",
        "not a regular file",
        "no file can have a null byte in its name",
    ]


def test_odd_file_names_stay_on_one_line(tmp_path):
    name = os.fsdecode(b"a\n\xff.py")
    (tmp_path / name).write_text(WRONG)
    (finding,) = lint_files([tmp_path]).findings
    assert finding.file.endswith("a\\n\\udcff.py")
    assert str(finding).encode()


def test_report_becomes_plain_data():
    report = LintReport((Finding("a.py", 1, 2, "CS001", "m", "f"),), (Skipped("b.py", "why"),), ("a.py",))
    assert json.loads(json.dumps(report.to_dict())) == {
        "findings": [{"file": "a.py", "line": 1, "column": 2, "code": "CS001", "message": "m", "fix": "f"}],
        "skipped": [{"file": "b.py", "why": "why"}],
        "linted": ["a.py"],
    }


def test_names_that_refer_to_themselves_end():
    source = "import torch\nn = n * n\ncos = cos\na = b\nb = a\nx = torch.where(n == 0, 1.0, a / (n * b))\n"
    source += "if n == 0:\n    cos = 1.0\n" + "v = " + "*".join(["v"] * 500) + "\nw = v / (v * v + 1e-8)\n"
    assert isinstance(lint_source(source), list)


def test_a_seed_in_another_file_of_the_folder_counts(tmp_path):
    (tmp_path / "nets").mkdir()
    layer = tmp_path / "nets" / "layer.py"
    layer.write_text(PITFALLS["CS009"].wrong)
    assert [finding.code for finding in lint_files([tmp_path]).findings] == ["CS009"]
    main = tmp_path / "main.py"
    main.write_text("import torch\ng = torch.Generator()\ng.manual_seed(1)\n# torch.manual_seed(0)\n")
    assert [finding.code for finding in lint_files([tmp_path]).findings] == ["CS009"], (
        "a generator of its own, a comment"
    )
    main.write_text("import torch\n\nif True:\n    torch.manual_seed(0)\n")
    assert lint_files([tmp_path]).findings == ()
    assert lint_files([layer]).findings != (), "only that folder was named"
