"""The reporting form and the per-layer table against the JSONL files, and their two written forms."""

import json
import re

import numpy as np
import pytest
from protocol import cases

from creditscope.protocol.audit import audit
from creditscope.records import FeedbackSpec, HeaderRow
from creditscope.report import per_layer_table, reporting_form, write_report
from creditscope.report.form import tables_latex, tables_markdown


@pytest.fixture(scope="module")
def judged(folder):
    return audit(folder)


@pytest.fixture(scope="module")
def collapsed(judged):
    return next(cell for cell in judged.claims if cell.cell.method == "dfa-rms")


def rows_of(folder, kind):
    """The last row of a kind of each seed of dfa-rms."""
    found = []
    for path in sorted(folder.glob("dfa-rms-s*")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found.append([row for row in rows if row["kind"] == kind][-1])
    return found


def test_the_per_layer_table_is_the_mean_over_seeds(collapsed, folder):
    table = per_layer_table(collapsed)
    epochs, probes = rows_of(folder, "epoch"), rows_of(folder, "probe")
    wanted = {
        "‖h‖": ("{:.3g}", [row["hidden"]["median"] for row in epochs]),
        "‖g‖": ("{:.3g}", [row["reference"]["median"] for row in epochs]),
        "gain": ("{:.3g}", [row["gain"] for row in epochs]),
        "cosine acting": ("{:+.3f}", [row["cosine"]["mean"] for row in epochs]),
        "cosine published": ("{:+.3f}", [row["cosine_published"]["mean"] for row in epochs]),
        "ρ": ("{:+.3f}", [row["rho"]["credit"] for row in probes]),
        "nudge": ("{:+.2e}", [row["nudge"]["credit"] for row in probes]),
        "fidelity φ": ("{:.6f}", [row["fidelity"]["median"] for row in probes]),
        "probe accuracy": ("{:.4f}", [row["probe_accuracy"] for row in probes]),
    }
    for column, (form, seeds) in wanted.items():
        shown = [row[table.columns.index(column)] for row in table.rows]
        assert shown == [form.format(value) for value in np.mean(seeds, axis=0)], column
    worst = np.max([row["null"]["p"] for row in probes], axis=0)
    assert [row[table.columns.index("null p")] for row in table.rows] == [f"{p:.3g}" for p in worst]
    assert table.title == "Per layer: dfa-rms, epoch 5, mean over 3 seeds; p: largest"


def test_exact_states_are_marked(judged):
    bp = next(cell for cell in judged.claims if cell.cell.method == "bp")
    assert [row[0] for row in per_layer_table(bp).rows] == [f"h_{state} (exact)" for state in range(5)]
    assert {row[6] for row in per_layer_table(bp).rows} == {"–"}


def test_the_form_is_filled(judged, collapsed):
    form = dict(reporting_form(collapsed, judged).rows)
    assert form["Method"] == "dfa-rms"
    assert form["Credit formula"].startswith("c_{l+1} = e·B_l")
    assert form["Normalisation"] == "each sample's credit divided by its RMS"
    assert form["Seeds"] == "42, 123, 456"
    assert form["Verdict"] == "walked back"
    assert form["Check: scale"].startswith("fires (exact; threshold 50×): growth")
    assert "published index: +0.200" in form["Aggregation of the cosine"]
    assert form["Pitfall: frozen baseline"] == "dfa-rms@frozen, matched"
    assert form["Injection point"] == "not stated"
    assert form["Feedback fingerprints"] == "not saved"


def test_feedback_is_named_where_it_was_saved(logs):
    spec = next(log for log in logs if log.spec.method == "dfa-rms").spec
    feedback = FeedbackSpec(dist="normal", scale="1/sqrt(classes)", seed=42, hash="0123456789abcdef")
    log = next(log for log in logs if log.spec.method == "dfa-rms")
    known = HeaderRow(spec=spec.model_copy(update={"feedback": feedback, "injection": "at every block"}))
    result = audit([cases.replace(log, header=known)])
    form = dict(reporting_form(result.claims[0], result).rows)
    assert form["Feedback"] == "dist normal, scale 1/sqrt(classes)"
    assert form["Feedback fingerprints"] == "seed 42: 01234567"
    assert form["Injection point"] == "at every block"


def test_a_log_that_says_nothing_gives_a_form_that_says_so(logs):
    spec = logs[0].spec.model_copy(update=dict.fromkeys(("model", "data", "probe", "optimiser", "penalty")))
    bare = cases.replace(
        logs[0],
        header=HeaderRow(spec=spec.model_copy(update={"origin": "import", "rule": "mine"})),
        epochs=(),
        probes=(),
    )
    result = audit([bare])
    form = dict(reporting_form(result.claims[0], result).rows)
    for item in ("Credit formula", "Model", "Data", "Optimiser", "Penalty λ", "Probe set"):
        assert form[item] == "not stated"
    assert form["Aggregation of the cosine"] == "not logged"
    assert per_layer_table(result.claims[0]).rows == ()


def test_markdown(judged):
    text = tables_markdown(judged)
    assert text.startswith("# Protocol standard, version 2; 2 cells judged")
    assert "**Reporting form: dfa-rms**" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


def test_latex(judged):
    text = tables_latex(judged)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 3 + 2 * len(judged.claims)
    assert text.count(r"\begin{tabular}{lp{0.68\linewidth}}") == len(judged.claims)
    for environment in re.findall(r"\\begin\{tabular\}\{([lrp].*?)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL):
        rows = [line for line in environment[1].splitlines() if line.endswith(r"\\")]
        assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    # Every other character would need a font that pdfLaTeX does not load by itself.
    assert not re.search(r"[^\x00-\x7f]", text)


@pytest.mark.parametrize(("suffix", "mark"), [(".md", "**Reporting form: bp**"), (".tex", r"\toprule")])
def test_the_suffix_decides(logs, tmp_path, suffix, mark):
    assert mark in write_report(logs, tmp_path / f"tables{suffix}").read_text(encoding="utf-8")


def test_skipped_files_are_named(logs, folder, tmp_path):
    (tmp_path / "bad_file.jsonl").write_text("nonsense")
    text = tables_markdown(audit([folder, tmp_path]))
    assert "- bad\\_file.jsonl: wanted a header row" in text
    assert r"% skipped bad\_file.jsonl" in tables_latex(audit([folder, tmp_path]))
