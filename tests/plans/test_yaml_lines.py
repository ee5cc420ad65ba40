"""YAML as plain values: every refusal names its line; nothing hostile is built."""

import datetime

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.errors import BadFile, CreditscopeError
from creditscope.plans.yaml_lines import MAX_BYTES, parse_yaml, read_yaml

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


@given(plain)
def test_reads_what_the_safe_loader_reads(value):
    text = yaml.safe_dump(value, allow_unicode=False)
    assert parse_yaml("x.yaml", text).value == yaml.safe_load(text)


def test_lines_are_those_of_the_keys():
    text = "a: 1\nb:\n  c: [1,\n      2]\n  d: x\n"
    lines = parse_yaml("x.yaml", text).lines
    assert (lines["a",], lines["b",], lines["b", "c"], lines["b", "c", 1], lines["b", "d"]) == (1, 2, 3, 4, 5)


LAUGHS = "a: &a [x, x]\n" + "\n".join(f"{b}: &{b} [*{a}, *{a}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))

BAD = {
    "aliases": (LAUGHS, "line 2: aliases are not read; write the values of *a out"),
    "recursive alias": ("a: &a [*a]", "line 1: aliases are not read"),
    "python object": (
        "a: 1\nb: !!python/object/apply:os.system [ls]",
        "line 2: wanted a text, a number, true or false",
    ),
    "own tag": ("a: !ours x", "line 1: wanted a text"),
    "binary": ("a: !!binary aGk=", "got !!binary"),
    "date": ("a: 2026-01-01", "got !!timestamp; quote it"),
    "merge key": ("a: {<<: {b: 1}}", "line 1: wanted a word as a key"),
    "number as key": ("1: a", "line 1: wanted a word as a key"),
    "list as key": ("? [a]\n: b", "line 1: wanted a word as a key"),
    "key twice": ("a: 1\nb: 2\na: 3", "line 3: a: stands here a second time; keep one"),
    "indentation": ("a: 1\n  b: 2", "line 2: not YAML"),
    "tab": ("a:\n\tb: 1", "line 2: not YAML"),
    "deep": ("[" * 500 + "]" * 500, "nested more than 20 deep"),
    "many": ("[" + "1," * 30_000 + "]", "more than 20000 values"),
    "two documents": ("a: 1\n---\nb: 2", "line 2: not YAML"),
    "empty": ("# nothing\n", "empty"),
    "control character": ("a: \x01", "not YAML"),
    "endless number": ("a: " + "9" * 5000, "line 1: cannot be read as int"),
    "not a number": ("a: !!int x", "line 1: cannot be read as int"),
    "not a flag": ("a: !!bool x", "line 1: cannot be read as bool"),
    "not a float": ("a: !!float ''", "line 1: cannot be read as float"),
    "empty int": ("a: !!int ''", "line 1: cannot be read as int"),
    "list tagged as text": ("a: !!str [x]", "line 1: "),
    "text tagged as map": ("a: !!map x", "line 1: "),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_refusals(text, message):
    with pytest.raises(BadFile) as caught:
        parse_yaml("x.yaml", text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.yaml: ")
    assert "\n" not in str(caught.value)


def test_a_file_is_bounded_and_must_be_text(tmp_path):
    (tmp_path / "long.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "latin.yaml").write_bytes("a: \xe9".encode("latin-1"))
    for name, message in (("long", "longer than"), ("latin", "not UTF-8"), ("missing", "cannot be read")):
        with pytest.raises(BadFile, match=message):
            read_yaml(tmp_path / f"{name}.yaml")
    with pytest.raises(BadFile, match="cannot be read"):
        read_yaml(tmp_path)


marks = st.sampled_from(
    [*"{}[]:,-?!&*#|>'\"%@`\n\t =~<", "!!", "<<", "- ", ": ", "a", "1", "1e5", "null", "\ufeff", "\x85"]
)


def single_line(error):
    assert "\n" not in str(error)


@settings(max_examples=300)
@given(st.lists(marks | st.text(max_size=3), max_size=30).map("".join))
def test_any_text_is_read_or_refused(text):
    try:
        value = parse_yaml("x.yaml", text).value
    except CreditscopeError as error:
        single_line(error)
        return
    assert not isinstance(value, (datetime.date, set, bytes))
