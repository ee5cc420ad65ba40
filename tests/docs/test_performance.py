"""The performance page: its verdicts follow from the numbers, and the numbers from the files."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import make_performance
import paper_time
import pytest

ROOT = Path(__file__).parents[2]
FILES = ROOT / "benchmarks" / "results"


def shown(value):
    return f"{value:g}"


@pytest.mark.parametrize(
    ("judge", "values", "measured", "met"),
    [
        (make_performance.at_most, [1.0, 3.0], "3", True),
        (make_performance.at_most, [1.0, 3.5], "3.5", False),
        (make_performance.at_least, [9.0, 3.0], "3", True),
        (make_performance.at_least, [9.0, 2.5], "2.5", False),
        (make_performance.at_least, [], None, None),
    ],
)
def test_the_worst_value_is_judged(judge, values, measured, met):
    target = judge("what", "file", 3.0, values, shown)
    assert (target.measured, target.met) == (measured, met)


def page_line(what):
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {what}"))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_card_ratio_against_plain_json():
    found = json.loads((FILES / "gpu-h200.json").read_text())["results"]
    here = [row for row in found if row["runs"] == 128 and row["matmul"] == "tf32"]
    best = max(row["plain_one"] / row["fleet"] for row in here)
    _, _, measured, word, _ = page_line("GPU, 128 runs, tf32: plain loop (one AdamW)/fleet")
    assert measured == f"{best:.0f}×"
    assert word == ("met" if best >= 150 else "NOT met")


def test_the_forecast_of_memory_against_plain_json():
    found = json.loads((FILES / "growth-cpu.json").read_text())["results"]
    worst = max(abs(row["predicted"] - row["measured"]) / row["measured"] for row in found)
    _, _, measured, word, _ = page_line("CPU: forecast of the peak memory")
    assert measured == f"{100 * worst:.1f} %"
    assert word == ("met" if worst <= 0.2 else "NOT met")


def test_the_time_of_the_paper_against_plain_json():
    begun, ended, steps = [], [], 0
    for path in (ROOT / "results" / "cifar10-h200").glob("*.gz"):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        header, end = lines[0], lines[-1]
        if header["spec"]["targets"] != "labels":
            continue
        begun.append(datetime.fromisoformat(header["time_created"]).timestamp())
        ended.append(begun[-1] + end["time_total"])
        steps += (
            max(row["step"] for row in lines if row["kind"] == "epoch") if header["spec"]["model"] == "resmlp" else 0
        )
    # Logs of a fleet may be made on either side of a full second.
    assert paper_time.paper_seconds() == pytest.approx(max(ended) - min(begun), abs=1.001)
    assert paper_time.paper_steps("resmlp") == steps


def test_a_missing_file_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(make_performance, "BENCHMARKS", tmp_path)
    make_performance.record.cache_clear()
    try:
        text = make_performance.build()
    finally:
        make_performance.record.cache_clear()
    for name in make_performance.COMMANDS:
        assert f"`benchmarks/results/{name}.json`: not measured." in text
    assert "met | gpu-h200" not in text


def test_every_command_runs_a_benchmark_that_is_there():
    for name, command in make_performance.COMMANDS.items():
        _, script, *words = command.split()
        assert (ROOT / script).is_file()
        assert words[-2:] == ["--out", f"benchmarks/results/{name}.json"]


def test_run_steps_are_spread_over_the_time_of_their_epoch():
    def fleet(model, runs, start, *times):
        rows = [SimpleNamespace(epoch=at, time_epoch=took, step=100 * at) for at, took in enumerate(times)]
        spec = SimpleNamespace(model=model, epochs=len(times) - 1)
        created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
        header = SimpleNamespace(time_created=created.isoformat())
        end = SimpleNamespace(time_total=sum(times))
        return [SimpleNamespace(spec=spec, epochs=rows, header=header, end=end)] * runs

    small, large = fleet("resmlp", 2, 0, 1.0, 2.0, 2.0), fleet("vit-mini", 3, 4, 0.0, 4.0)
    assert [paper_time._done(small, at) for at in (0.5, 1, 2, 3, 5, 9)] == [0, 0, 100, 200, 400, 400]
    assert paper_time._stretches([large, small]) == [
        ("0–5", "3 × vit-mini, 2 × resmlp", "0", "0"),
        ("5–8", "3 × vit-mini", "0", "0"),
    ]
    many = fleet("resmlp", 20, 0, 1.0, 2.0, 2.0)
    assert paper_time._stretches([large * 10, many])[0] == ("0–5", "30 × vit-mini, 20 × resmlp", "4,000", "1,000")
