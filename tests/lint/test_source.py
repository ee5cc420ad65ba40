import ast
from textwrap import dedent

import pytest

from creditscope.errors import BadFile
from creditscope.lint.source import MAX_BYTES, Source, parse, same, split_lines


def last_value(text):
    """The source, and the value of its last assignment."""
    source = Source(dedent(text).strip(), "snippet.py")
    values = [node.value for node in source.nodes if isinstance(node, ast.Assign)]
    return source, max(values, key=lambda node: (node.lineno, node.col_offset))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch as th\nx = th.nn.functional.normalize", "torch.nn.functional.normalize"),
        ("import torch.nn.functional as F\nx = F.normalize", "torch.nn.functional.normalize"),
        ("import torch.nn.functional\nx = torch.norm", "torch.norm"),
        ("from torch import nn\nx = nn.Module", "torch.nn.Module"),
        ("from torch.nn.functional import cosine_similarity as cs\nx = cs", "torch.nn.functional.cosine_similarity"),
        ("import torch\nf = torch.norm\nx = f", "torch.norm"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\nx = torch.norm", "torch.norm"),
        ("from .torch import norm\nx = norm", ".torch.norm"),
        ("import torch\ndef f(torch):\n    x = torch.norm", None),
        ("x = unknown.norm", None),
        ("x = f().norm", None),
        ("a = b\nb = a\nx = a.c", None),
    ],
)
def test_imported_names_are_resolved(text, name):
    source, value = last_value(text)
    assert source.qualified(value) == name


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("x = 1e-8", 1e-8),
        ("x = -1", -1.0),
        ("x = 10**-8", 1e-8),
        ("EPS = 1e-6\ndef f():\n    x = EPS", 1e-6),
        ("def f(eps=1e-5):\n    x = eps", 1e-5),
        ("def f(*, eps=1e-5):\n    x = eps", 1e-5),
        ("a, b = 1, 2\nx = b", 2.0),
        ("def f(eps):\n    x = eps", None),
        ("e = 1\ne = 2\nx = e", None),
        ("e = 1\ne += 2\nx = e", None),
        ("for e in s:\n    x = e", None),
        ("x = True", None),
        ("x = 'text'", None),
        ("x = 10**1000", None),
        ("x = (-8)**0.5", None),
        ("x = 0**-1", None),
        ("x = 1" + "0" * 400, None),
        ("class A:\n    e = 1\n    def f(self):\n        x = e", None),
        ("class A:\n    def __init__(self):\n        self.e = 3\n    def f(self):\n        x = self.e", 3.0),
    ],
)
def test_numbers_are_followed_only_where_certain(text, number):
    source, value = last_value(text)
    assert source.number(value) == (None if number is None else pytest.approx(number))


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("a[l]", "a[ l ]", True),
        ("f(a, b=1)", "f(a, b=1)", True),
        ("f(a, b)", "f(b, a)", False),
        ("a + (b + c)", "(a + b) + c", False),
        ("a.b.c", "a.c.b", False),
        ("1", "1.0", False),
        ("1", "True", False),
        ("f(a)", "f(a, a)", False),
    ],
)
def test_same_compares_layout_free(first, second, equal):
    trees = [ast.parse(text, mode="eval").body for text in (first, second)]
    assert same(*trees) is equal
    assert (ast.dump(trees[0]) == ast.dump(trees[1])) is equal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", r"s\.py: not Python: '\(' was never closed at line 1"),
        ("def f(:\n", r"s\.py: not Python: .* at line 1"),
        ("x = 1\0", r"s\.py: not Python: .*null bytes"),
        ("x = '\ud800'", r"s\.py: not Python: .*surrogates"),
        ("x = " + "-" * 100_000 + "1", r"s\.py: nested too deeply"),
        ("x = " + "+".join(["a"] * 50_000), r"s\.py: nested too deeply"),
        ("#" * (MAX_BYTES + 1), r"s\.py: more than"),
    ],
)
def test_what_cannot_be_parsed_is_said_in_one_line(text, message):
    with pytest.raises(BadFile, match=message) as caught:
        parse(text, "s.py")
    assert "\n" not in str(caught.value)


def test_lines_are_counted_as_python_does():
    text = "a = 1\x0c\nb = 2\r\nc = 3\rd = '\u2028'\ne = 5"
    assert split_lines(text) == ["a = 1\x0c", "b = 2", "c = 3", "d = '\u2028'", "e = 5"]
    assert [node.lineno for node in ast.parse(text).body] == [1, 2, 3, 4, 5]
