"""No number on a page is stale: each page is what its script writes from the committed logs."""

import gzip
import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import finding
import make_causes
import make_findings
import make_gallery
import make_misleading
import make_performance
import make_reliability
import make_reproduction
import make_rules
import numpy as np
import pack
import page_data
import pytest
import yaml
from make_figures import FIGURES, chosen
from paper_time import command_seconds
from scipy.stats import ttest_ind, ttest_ind_from_stats

from creditscope.figures import ARTEFACTS
from creditscope.records import RunLog

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "cifar10-h200"
PAGES = {
    "causes.md": make_causes,
    "reproduction.md": make_reproduction,
    "findings.md": make_findings,
    "gallery.md": make_gallery,
    "misleading.md": make_misleading,
    "performance.md": make_performance,
    "reliability.md": make_reliability,
    "rules.md": make_rules,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_script_writes(name):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name].build(), f"run docs/{PAGES[name].SCRIPT}"


def test_the_readme_of_the_results_is_what_pack_writes():
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == pack.readme(RESULTS)


@pytest.mark.parametrize("stem", chosen())
def test_the_data_of_a_figure_are_what_the_logs_give(stem):
    artefact, logs = chosen()[stem]
    table = ARTEFACTS[artefact][0](logs, "published")
    assert (FIGURES / f"{stem}.csv").read_bytes() == table.to_csv().encode()
    for suffix in (".png", ".svg", ".pdf"):
        assert (FIGURES / f"{stem}{suffix}").stat().st_size > 10_000


def test_each_command_gives_exactly_the_runs_that_stand_there():
    logs = page_data.results().logs
    asked = [pack.run_ids(command, logs) for command in pack.commands(RESULTS)]
    assert sum(map(len, asked)) == len(set().union(*asked)) == len(logs)
    assert set().union(*asked) == {log.spec.run_id for log in logs}
    assert {f"{log.spec.run_id}.jsonl.gz" for log in logs} == {path.name for path in RESULTS.glob("*.gz")}


def test_the_minutes_of_the_readme_are_those_of_the_results():
    word = {4: "four", 5: "five", 6: "six"}[round(command_seconds() / 60)]
    assert f"in about {word} minutes on one H200" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_packing_loses_nothing_and_gives_the_same_bytes(tmp_path):
    path = min(RESULTS.glob("*.gz"), key=lambda file: file.stat().st_size)
    (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    pack.pack(tmp_path, tmp_path)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@cache
def plain(method, epochs, model="resmlp", terminal_ln=True, targets="labels"):
    """The rows of a cell, read without the library: seed, epoch rows, probe rows."""
    found = []
    for path in RESULTS.glob("*.gz"):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        spec = lines[0]["spec"]
        facts = (spec["epochs"], spec["model"], spec["terminal_ln"], spec["targets"])
        if path.name.startswith(f"{method}-s") and facts == (epochs, model, terminal_ln, targets):
            rows = {kind: [line for line in lines if line["kind"] == kind] for kind in ("epoch", "probe")}
            found.append((spec["seed"], rows["epoch"], rows["probe"]))
    return sorted(found)


def correct(method):
    """Which test images each seed of a cell of 100 epochs had right: one row a seed."""
    found = {}
    for path in RESULTS.glob(f"{method}-s*.gz"):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        if lines[0]["spec"]["epochs"] == 100:
            bits = np.unpackbits(np.frombuffer(bytes.fromhex(lines[-1]["correct"]), dtype=np.uint8))
            found[lines[0]["spec"]["seed"]] = bits[: lines[-1]["n_test"]].astype(float)
    return np.array([found[seed] for seed in sorted(found)])


def test_every_seed_is_there_once():
    assert [seed for seed, _, _ in plain("dfa-rms", 100)] == [42, 123, 456]


ORACLES = {
    "accuracy": lambda e, p: e[-1]["test_accuracy"],
    "stream": lambda e, p: e[-1]["hidden"]["median"][4],
    "gradient": lambda e, p: e[-1]["reference"]["median"][4] / 128,
    "growth": lambda e, p: max(b / a for a, b in pairwise(e[-1]["hidden"]["median"])),
    "deep_cosine": lambda e, p: sum(e[-1]["cosine_published"]["mean"][1:]) / 4,
    "largest_deep_cosine": lambda e, p: max(abs(c) for c in e[-1]["cosine_published"]["mean"][1:]),
    "null_sd": lambda e, p: sum(p[-1]["null_published"]["sd"][1:]) / 4,
    "null_mean": lambda e, p: sum(p[-1]["null_published"]["mean"][1:]) / 4,
    "smallest_control": lambda e, p: min(p[-1]["rho"]["control"]),
    "largest_random": lambda e, p: max(map(abs, p[-1]["rho"]["random"])),
    "deep_rho": lambda e, p: sum(p[-1]["rho"]["credit"][2:]) / 3,
    "first_reference": lambda e, p: next(r["epoch"] for r in e if r["reference"]["median"][4] < 1.28e-5),
}


@pytest.mark.parametrize("quantity", ORACLES)
def test_a_quantity_against_plain_json(quantity):
    method, epochs = ("dfa-rms", 100) if quantity == "first_reference" else ("dfa-rms+pen0.01", 30)
    expected = [ORACLES[quantity](epochs_, probes) for _, epochs_, probes in plain(method, epochs)]
    measure, _ = make_reproduction.QUANTITIES[quantity]
    assert [measure(log) for log in page_data.runs(method, epochs)] == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_ranges_can_fail():
    row = {"low": 0.3, "high": 0.4, "over": "mean"}
    assert make_reproduction.in_range(row, [0.25, 0.45]) is True
    assert make_reproduction.in_range(row | {"over": "every"}, [0.25, 0.45]) is False
    assert make_reproduction.in_range(row, [0.5, 0.5]) is False
    assert make_reproduction.in_range({"high": 5, "over": "every"}, [3, None]) is False
    assert make_reproduction.in_range({"never": True}, [None, 7]) is False
    assert make_reproduction.in_range({"never": True}, [None, None]) is True
    assert make_reproduction.in_range({}, [1.0]) is None


def test_the_distance_from_a_published_mean_is_welchs_statistic():
    ours = [0.5736, 0.5700, 0.5643]
    row = {"published": ".532 ± .007", "low": 0.515, "high": 0.58, "over": "mean"}
    welch = ttest_ind_from_stats(np.mean(ours), np.std(ours, ddof=1), 3, 0.532, 0.007, 3, equal_var=False)
    assert make_reproduction.distance(row, ours) == pytest.approx(welch.statistic)
    assert make_reproduction.outcome(row, ours) == "in range"
    assert make_reproduction.outcome(row | {"published": ".565 ± .007"}, ours) == "reproduces"
    assert make_reproduction.outcome(row | {"high": 0.55}, ours) == "OUT OF RANGE"
    listed = make_reproduction.distance({"published": "8, 11, 8"}, [2, 3, 3])
    assert listed == pytest.approx(ttest_ind([8, 11, 8], [2, 3, 3], equal_var=False).statistic)
    for published in ("4–5e8", "−.085", "–", "≈ 0"):
        assert make_reproduction.distance({"published": published}, ours) is None
    assert make_reproduction.distance({"published": "−.085 ± .01"}, [-0.1, 0.0]) == pytest.approx(
        (0.085 - 0.05) / (0.05**2 + 0.01**2 / 3) ** 0.5
    )


def test_every_row_of_the_yaml_is_on_the_page_with_its_values():
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    asked = yaml.safe_load((ROOT / "docs" / "published.yaml").read_text(encoding="utf-8"))
    assert len(asked["judged"]) == 33
    for row in [*asked["judged"], *asked["not_matched"]]:
        measured = ", ".join(page_data.number(value) for value in make_reproduction.values(row))
        lines = [line for line in text.splitlines() if line.startswith(f"| {row['condition']} |") and measured in line]
        assert lines, row
    assert "those logs are not committed" in text
    logs = [RunLog.read(path) for path in sorted(RESULTS.glob("*.jsonl.gz"))]
    fast = sum(log.spec.matmul == "tf32" for log in logs)
    assert f"{fast} of {len(logs)} runs used TF32 matrix products" in text


@pytest.mark.parametrize(
    ("holds", "word"),
    [
        ((True, True), "shown"),
        ((False, False), "refuted"),
        ((True, False), "partly"),
        ((True, None), "partly"),
        ((None,), "not measured"),
    ],
)
def test_the_word_follows_the_claims(holds, word):
    made = finding.Finding("title", tuple(finding.Claim("says", value, "numbers") for value in holds))
    assert made.word == word
    assert made.text(1).startswith(f"## 1. title: {word}")


def test_six_findings_and_the_margin_by_hand():
    """The paired interval of the first finding from plain JSON: t quantile 4.302653 for two degrees of freedom, and
    the variance of test images as that of the per-image means beyond what seeds within an image explain.
    """
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^## \d\. ", text, flags=re.MULTILINE)) == 6
    pairs = zip(plain("dfa", 100), plain("dfa@frozen", 100), strict=True)
    margins = [100 * (a[1][-1]["test_accuracy"] - b[1][-1]["test_accuracy"]) for a, b in pairs]
    right, frozen = (correct(method) for method in ("dfa", "dfa@frozen"))
    difference = right - frozen
    centred = difference - difference.mean(1, keepdims=True)
    between = 3 * centred.mean(0).var(ddof=1)
    within = (centred - centred.mean(0)).var(ddof=0) * difference.size / (2 * (difference.shape[1] - 1))
    images = max(0.0, between - within) / difference.size
    half = ((4.302653 * stdev(margins) / 3**0.5) ** 2 + 1e4 * 1.959964**2 * images) ** 0.5
    low, high = fmean(margins) - half, fmean(margins) + half
    assert f"margin {fmean(margins):+.2f} pp, 95 % interval [{low:.2f}, {high:.2f}]" in text


def test_the_growth_that_a_partial_log_seems_to_show_by_hand():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    rows = [epochs for _, epochs, _ in plain("dfa-rms+pen0.01", 30)]
    naive = [(e[-1]["hidden"]["median"][4] / e[0]["hidden"]["median"][4]) ** 0.25 for e in rows]
    assert f"reads as {', '.join(f'{value:.4f}' for value in naive)}-fold growth a block" in text


def test_numbers_are_written_plainly():
    assert [page_data.number(value) for value in (0.61, 4909.4, 1.39e-7, 2.1341e9, 3, None)] == [
        *("0.6100", "4909", "1.39e-7", "2.13e9", "3", "never"),
    ]
    assert page_data.mean_sd([0.3522, 0.3522, 0.3527]) == "0.3524 ± 0.0003"
    assert page_data.mean_sd([1.0, None]) == "–"
    with pytest.raises(LookupError):
        page_data.runs("bp", 77)
