"""Every notebook is committed without outputs, runs as it is, and shows what it promises."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
# Patterns that some output holds, and how many pictures there are.
PROMISES = {
    "audit_your_own_model.ipynb": (
        [
            r"my-dfa, seed 0: finished",
            r"<table>.*my-dfa@frozen",
            r"direction (fires|passes|undecided), exact",
            r"^local: ",
        ],
        1,
    ),
    "read_and_judge_logs.ipynb": (
        [
            r"^dfa-rms \(seeds 42, 123 and 456\): walked back$",
            r"<table>.*looks like learning",
            r"<table>.*outcome stays for",
            r"<table>.*healthiest failing",
            r"^scale = 100000  dfa-rms  scale passes  → walked back$",
            r"\\begin\{tabular\}",
            r"'verdict': 'walked back'",
        ],
        2,
    ),
}


def test_every_notebook_has_its_promises():
    assert sorted(PROMISES) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_committed_without_outputs_and_stands_in_the_docs(name):
    content = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert content["cells"][0]["cell_type"] == "markdown"
    assert (ROOT / "docs" / "notebooks" / name).samefile(EXAMPLES / name)
    assert f"notebooks/{Path(name).stem}\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.peers
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_keeps_its_promise(name, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = {path.name for path in EXAMPLES.iterdir()}
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [
        output.get("text") or output.get("data", {}).get("text/html") or output.get("data", {}).get("text/plain", "")
        for output in outputs
    ]
    patterns, pictures = PROMISES[name]
    for pattern in patterns:
        assert any(re.search(pattern, text, re.MULTILINE) for text in shown), pattern
    assert sum("image/png" in output.get("data", {}) for output in outputs) == pictures
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert {path.name for path in EXAMPLES.iterdir()} == before
