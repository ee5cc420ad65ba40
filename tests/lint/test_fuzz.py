"""Whatever text comes, the linter answers: with findings, or with the one error that names the file."""

import ast
import json
import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.errors import BadFile
from creditscope.lint import PITFALLS, lint_files, lint_source
from creditscope.lint.notebook import read_notebook
from creditscope.lint.source import parse

VALID = [(Path(__file__).parent / "scripts" / name).read_text() for name in ("careless.py", "careful.py")]
VALID += [pitfall.wrong for pitfall in PITFALLS.values()]
NAMES = ["torch", "F", "nn", "self", "cos", "g", "h", "v", "n", "norm", "eps", "B", "where", "x"]


def refusal(call, *arguments):
    """The message with which a call refuses its input, or None; any other error is a bug and raises."""
    try:
        call(*arguments)
    except BadFile as error:
        return str(error)
    return None


def check(text):
    refused = refusal(lint_source, text, "fuzz.py")
    if refused is not None:
        assert refused.startswith("fuzz.py: ")
        assert "\n" not in refused
        return
    count = text.count("\n") + text.count("\r") + 1
    assert all(1 <= found.line <= count and found.column >= 1 for found in lint_source(text, "fuzz.py"))


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_random_text(text):
    check(text)


@given(st.sampled_from(VALID), st.integers(0, 2**32), st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_random_mutations_of_text(text, seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        start = rng.randrange(len(text))
        stop = min(len(text), start + rng.randrange(12))
        text = (
            text[:start]
            + rng.choice(["", text[start:stop] * 2, "(", ")", "\n", "\0", "=", "*", "é", "-1"])
            + text[stop:]
        )
        if not text:
            break
    check(text)


def is_read(node):
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


class Mutation(ast.NodeTransformer):
    """Swaps expressions of a valid tree at random: the result always parses, and hits odd shapes."""

    def __init__(self, seed, pool):
        self.rng = random.Random(seed)
        self.pool = pool

    def visit(self, node):
        node = self.generic_visit(node)
        if isinstance(node, ast.expr) and is_read(node):
            if self.rng.random() < 0.03:
                return self.rng.choice(self.pool)
            if isinstance(node, ast.Name) and self.rng.random() < 0.1:
                return ast.Name(self.rng.choice(NAMES), ast.Load())
        return node


@given(st.sampled_from(VALID), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_random_mutations_of_trees(text, seed):
    kinds = ast.Call | ast.BinOp | ast.Name | ast.Constant
    pool = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds) and is_read(node)]
    mutated = ast.unparse(ast.fix_missing_locations(Mutation(seed, pool).visit(ast.parse(text))))
    if refusal(parse, mutated, "fuzz.py") is None:
        assert refusal(lint_source, mutated, "fuzz.py") is None
        check(mutated)


@given(st.binary(max_size=200), st.sampled_from([".py", ".ipynb"]))
@settings(max_examples=100, deadline=None)
def test_random_bytes_in_files(tmp_path_factory, data, suffix):
    path = tmp_path_factory.mktemp("fuzz") / f"a{suffix}"
    path.write_bytes(data)
    report = lint_files([path])
    assert len(report.linted) + len(report.skipped) == 1


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cells", "source", "cell_type", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_random_json_as_notebook(data):
    refused = refusal(read_notebook, json.dumps(data), "n.ipynb")
    assert refused is None or refused.startswith("n.ipynb: ")
