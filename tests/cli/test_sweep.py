"""The sweep verb: the plan first, then the runs; mistakes are one line before anything starts."""

import re

import numpy as np
import pytest
import typer
from cases.sweeps import ends, write_tiny
from typer.testing import CliRunner

from creditscope.cli.sweep import sweep
from creditscope.errors import BadFile, BadInput, CannotWrite

APP = typer.Typer()
APP.command()(sweep)


def call(*arguments):
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("spec"), 1)


def test_a_dry_run_prints_the_plan_and_leaves_nothing(spec, tmp_path):
    out = tmp_path / "runs"
    result = call(spec, "--dry-run", "--device", "cpu", "--out", out, "--fleet-size", 2)
    assert result.exit_code == 0
    assert "4 runs in 2 fleet(s)" in result.stdout
    assert "the largest fleet takes about" in result.stdout
    assert re.search(
        r"^about \d+ s one after another on this cpu, by a short calibration$", result.stdout, re.MULTILINE
    )
    assert "nothing was trained (--dry-run)" in result.stdout
    assert not out.exists()


def test_a_sweep_prints_its_plan_first_and_is_done_once(spec, tmp_path):
    first = call(spec, "--device", "cpu", "--out", tmp_path, "--fleet-size", 3)
    assert first.exit_code == 0
    plan, told = first.stdout.split("MiB\n")
    assert "4 runs in 2 fleet(s)" in plan
    assert "the largest fleet takes about" in plan
    assert "accuracy" in told
    assert f"4 logs in {tmp_path}; next: creditscope audit {tmp_path}" in first.stdout
    assert "2 of 2 fleets ended: fleet 2, 2 runs finished" in first.stderr
    assert list(ends(tmp_path).values()) == [["finished"]] * 4
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = call(spec, "--device", "cpu", "--out", tmp_path, "--resume")
    assert again.exit_code == 0
    assert "4 of 4 runs are done already" in again.stdout
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    refused = call(spec, "--out", tmp_path)
    assert isinstance(refused.exception, CannotWrite)
    assert "already holds 4 of these 4 runs" in str(refused.exception)
    assert "pass --resume to go on with them" in refused.exception.with_flags


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "tpu", "--dry-run"), "--device tpu: wanted auto, cpu or cuda"),
        (("--on", "ray", "--device", "tpu", "--dry-run"), "--device tpu: wanted auto, cpu or cuda"),
        (("--on", "slurm"), "--on slurm: wanted local or ray"),
        (("--address", "auto"), "--address, --store and --scratch go with --on ray"),
        (("--store", "s3://x"), "--address, --store and --scratch go with --on ray"),
        (("--scratch", "x"), "--address, --store and --scratch go with --on ray"),
    ],
)
def test_bad_use(spec, tmp_path, arguments, message):
    result = call(spec, "--out", tmp_path, *arguments)
    assert isinstance(result.exception, BadInput)
    assert message in result.exception.with_flags
    assert not list(tmp_path.iterdir())


def test_a_bad_spec_is_refused_before_anything_starts(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("preset: demo\nset: {depht: 3}\n")
    result = call(path, "--out", tmp_path / "runs")
    assert isinstance(result.exception, BadFile)
    assert (
        str(result.exception)
        == "bad.yaml: line 2: set.depht: no such setting; did you mean 'depth' or 'epochs' or 'model.patch'?"
    )
    assert not (tmp_path / "runs").exists()


def test_two_data_files_of_one_name_are_refused(tmp_path):
    x, y = np.zeros((4, 5), np.float32), np.array([0, 1, 0, 1])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    path = tmp_path / "two.yaml"
    path.write_text(f"data: [{tmp_path}/a/mine.npz, {tmp_path}/b/mine.npz]\n")
    result = call(path, "--out", tmp_path / "runs")
    assert isinstance(result.exception, BadInput)
    assert "two.yaml: two data files share a name" in str(result.exception)
