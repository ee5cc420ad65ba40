"""A whole study, shrunk: every file is there, the numbers are the logs', and a second call trains nothing."""

import json
from dataclasses import replace

import pytest
from cases.tiny import FIELDS, tiny
from typer.testing import CliRunner

from creditscope.cli import app
from creditscope.data import load_data
from creditscope.errors import BadInput
from creditscope.plans import presets
from creditscope.records.load import load_logs
from creditscope.studies.partial import partial_audit, penalty_layout
from creditscope.studies.reproduce import STUDIES, plan, study


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """``creditscope reproduce demo`` on the shrunk preset, through the command line."""
    folder = tmp_path_factory.mktemp("study") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "demo", tiny())
        result = CliRunner().invoke(app, ["reproduce", "demo", "--out", str(folder)])
        assert result.exit_code == 0, result.output
        yield folder, result.stdout


def test_everything_is_there(made):
    folder, printed = made
    figures = ("hero", "penalty-rescue", "penalty-sweep", "snapshot")
    wanted = [f"figures/{name}{suffix}" for name in figures for suffix in (".pdf", ".png", ".csv")]
    for name in (*wanted, "partial-audit.txt", "partial-audit.md", "partial-audit.json", "report.html"):
        assert (folder / name).stat().st_size > 0, name
    assert len(list((folder / "runs").glob("*.jsonl"))) == tiny().count
    assert "verdict" in printed
    assert "report.html" in printed
    for method in presets.PRESETS["demo"].methods:
        assert method in printed


def test_a_second_call_trains_nothing_and_changes_no_log(made):
    folder, _ = made
    before = {path.name: path.read_bytes() for path in (folder / "runs").glob("*.jsonl")}
    result = CliRunner().invoke(app, ["reproduce", "demo", "--out", str(folder), "--resume"])
    assert result.exit_code == 0, result.output
    assert {path.name: path.read_bytes() for path in (folder / "runs").glob("*.jsonl")} == before


def test_without_resume_a_full_folder_is_refused(made):
    folder, _ = made
    result = CliRunner().invoke(app, ["reproduce", "demo", "--out", str(folder)])
    assert result.exit_code != 0
    assert "pass resume=True to go on" in str(result.exception)
    assert "pass --resume to go on" in result.exception.with_flags


def test_the_partial_audit_uses_three_numbers_an_epoch_and_a_bare_baseline(made):
    folder, _ = made
    logs = load_logs([folder / "runs"]).logs
    frozen = [log.last.test_accuracy for log in logs if log.spec.method == "dfa-rms@frozen"]
    found = json.loads((folder / "partial-audit.json").read_text())
    assert {cell["method"] for cell in found["cells"]} == {"dfa-rms", "dfa-rms+pen0.01"}
    for cell in found["cells"]:
        checks = {check["name"]: check for check in cell["checks"]}
        mean = sum(cell["accuracy"]["per_seed"]) / 3
        assert checks["depth"]["value"] == pytest.approx(100 * (mean - sum(frozen) / 3))
        assert [checks[name]["grade"] for name in ("scale", "reference", "depth")] == ["proxy"] * 3
        assert cell["verdict"] != "trustworthy"


def test_the_partial_layout_holds_the_published_units(made):
    folder, _ = made
    log = next(log for log in load_logs([folder / "runs"]).logs if log.spec.method == "dfa-rms")
    rows = penalty_layout(log)["log"]
    assert [row["h_L_norm"] for row in rows] == [row.hidden.median[-1] for row in log.epochs]
    assert [row["g_2_norm"] * 128 for row in rows] == pytest.approx([row.reference.median[2] for row in log.epochs])
    with pytest.raises(BadInput, match="runs of dfa-rms"):
        partial_audit([])


def test_a_partial_audit_mixes_no_settings(made):
    """A bare baseline belongs to one setting: another model's frozen runs must not move it."""
    logs = load_logs([made[0] / "runs"]).logs
    twin = next(log for log in logs if log.spec.method == "dfa-rms@frozen")
    header = twin.header.model_copy(update={"spec": twin.spec.model_copy(update={"model": "vit-mini"})})
    with pytest.raises(BadInput, match="dfa-rms runs of one setting, got 2; pass those of one preset"):
        partial_audit([*logs, replace(twin, header=header)])


def test_the_partial_audit_of_every_study_is_of_one_setting():
    data = load_data("fashion-mini")
    for chosen in STUDIES.values():
        specs = presets.build_specs(presets.preset(chosen.partial), data.spec, data.classes)
        dfa = [spec for spec in specs if spec.rule == "dfa" and spec.credit_norm == "rms"]
        assert chosen.partial in chosen.presets
        assert len({spec.match_key for spec in dfa}) == 1
        assert any(spec.is_baseline for spec in dfa)


def test_the_plan_names_every_fleet_with_its_time(made):
    planned = plan(STUDIES["demo"], None, "cpu")
    assert [len(members) for members, _ in planned] == [presets.PRESETS["demo"].count]
    cost = planned[0][1]
    assert min(cost.train, cost.measure, cost.probe) > 0
    assert cost.total == cost.train + cost.measure + cost.probe
    result = CliRunner().invoke(app, ["reproduce", "demo", "--dry-run"])
    assert result.exit_code == 0
    assert f"{presets.PRESETS['demo'].count} runs in 1 fleet" in result.stdout
    assert "nothing was trained" in result.stdout


def test_every_picture_of_every_study_has_its_runs():
    data = load_data("fashion-mini")
    for chosen in STUDIES.values():
        for picture in chosen.pictures:
            assert picture.preset in chosen.presets
            assert presets.build_specs(presets.preset(picture.preset), data.spec, data.classes)


def test_an_unknown_study_is_named():
    with pytest.raises(BadInput, match=r"unknown study 'papr'; did you mean 'paper'\?"):
        study("papr")


def test_probe_appends_a_row_that_agrees_with_the_run_s_own(made):
    folder, _ = made
    checkpoint = next((folder / "runs").glob("dfa-rms-s42-*.safetensors"))
    log = checkpoint.with_suffix(".jsonl")
    before = log.read_bytes()
    try:
        redraws = str(FIELDS["probe"].redraws)
        result = CliRunner().invoke(app, ["probe", str(checkpoint), "--redraws", redraws, "--device", "cpu"])
        assert result.exit_code == 0, result.output
        rows = load_logs([log]).logs[0].probes
        assert len(rows) == len(before.splitlines()) - 5 + 1, "header, three epochs and the end are no probes"
        own, again = rows[-2:]
        assert again.epoch == own.epoch == FIELDS["epochs"]
        assert again.null.observed[1:] == pytest.approx(own.null.observed[1:], rel=1e-5)
        assert again.null.p == own.null.p
        assert again.gradient_cosine == pytest.approx(own.gradient_cosine, rel=1e-4)
        assert log.read_bytes().startswith(before)
    finally:
        log.write_bytes(before)


def test_probe_refuses_what_is_no_checkpoint(tmp_path):
    junk = tmp_path / "junk.safetensors"
    junk.write_bytes(b"no such thing")
    result = CliRunner().invoke(app, ["probe", str(junk)])
    assert "not a readable checkpoint" in str(result.exception)
