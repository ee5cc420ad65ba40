from collections.abc import Callable
from textwrap import dedent

import pytest

from creditscope.lint import lint_source


@pytest.fixture
def lines() -> Callable[[str, str], tuple[list[int], list[int]]]:
    """Lines where a code was found, and lines that the snippet marks with ``#!``."""

    def run(code: str, snippet: str) -> tuple[list[int], list[int]]:
        source = dedent(snippet).strip("\n")
        marked = [number for number, line in enumerate(source.split("\n"), start=1) if line.endswith("#!")]
        return [finding.line for finding in lint_source(source, "snippet.py") if finding.code == code], marked

    return run
