"""A store on an S3-compatible server on this machine: logs arrive whole, are fetched, judged, and not made again."""

import json
import shutil
import subprocess
import sys
from urllib.request import Request, urlopen

import pytest
from cases.sweeps import contents, environment, sweep_here, tiny_runs, write_tiny

from creditscope.errors import BadInput, CannotWrite
from creditscope.execution.job import FleetJob
from creditscope.execution.plan import survey
from creditscope.execution.remote import RemoteContext, train_away
from creditscope.execution.store import download, upload
from creditscope.execution.sweep import fetch_done

pytestmark = pytest.mark.peers
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def bucket(monkeypatch):
    """An empty bucket, and the environment in which any process finds it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settle(monkeypatch, f"http://{host}:{port}")
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()  # it remembers within a process
    import s3fs

    s3fs.S3FileSystem(skip_instance_cache=True).mkdir("lab")
    yield "s3://lab/sweeps/tiny"
    server.stop()


def settle(monkeypatch, endpoint):
    """Where the server is, by the variables that every S3 client reads; one try, so that a test need not wait."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("spec"))


def keys():
    import s3fs

    files = s3fs.S3FileSystem(skip_instance_cache=True).find("lab")
    return {name.removeprefix("lab/sweeps/tiny/") for name in files}


def names_of(runs):
    return {f"{run.run_id}{kind}" for run in runs for kind in (".jsonl", ".safetensors")}


def test_finished_files_go_to_the_server_and_are_not_made_again(bucket, runs, tmp_path):
    handed_back = train_away(
        FleetJob(1, tuple(runs), threads=1), RemoteContext({"synthetic": "synthetic"}, device="cpu", store=bucket)
    )
    assert handed_back.error is None
    assert keys() == names_of(runs)
    assert fetch_done(bucket, runs, tmp_path) == 4
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == handed_back.files
    assert survey(tmp_path, runs, resume=True, stored=True).plan(threads=1).jobs == ()
    assert fetch_done(bucket, runs, tmp_path) == 0


def test_what_comes_back_is_what_went_there(bucket, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(bytes(range(256)) * 40_000)  # above the size at which uploads go in parts
    upload(bucket, [tmp_path / "a.jsonl"])
    (tmp_path / "back").mkdir()
    assert download(bucket, ["a.jsonl", "missing.jsonl"], tmp_path / "back") == 1
    assert (tmp_path / "back" / "a.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


@pytest.mark.ray
def test_a_sweep_uploads_from_its_workers_and_its_logs_can_be_judged_anywhere(bucket, runs, tmp_path):
    spec = write_tiny(tmp_path)
    words = (spec, "--fleet-size", 2, "--device", "cpu", "--on", "ray", "--store", bucket)
    sweep_here(*words, "--out", tmp_path / "here")
    assert keys() == names_of(runs)
    assert not list((tmp_path / "here").glob("*.safetensors"))
    shutil.rmtree(tmp_path / "here")  # the machine that began it is gone
    again = sweep_here(*words, "--out", tmp_path / "there")
    assert "4 of 4 runs are done already" in again.stdout
    sweep_here(spec, "--fleet-size", 2, "--device", "cpu", "--out", tmp_path / "undisturbed")
    assert contents(tmp_path / "there") == contents(tmp_path / "undisturbed")
    command = [sys.executable, "-m", "creditscope", "audit", str(tmp_path / "there"), "--format", "json"]
    audit = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert audit.returncode == 0, audit.stderr
    assert [(cell["method"], cell["seeds"]) for cell in json.loads(audit.stdout)["cells"]] == [
        ("bp", [1, 2]),
        ("dfa", [1, 2]),
    ]


def test_a_server_that_does_not_answer_is_one_line(monkeypatch, runs, tmp_path):
    settle(monkeypatch, NOBODY)
    (tmp_path / "a.jsonl").write_text("x")
    with pytest.raises(CannotWrite, match=r"store s3://lab/x: .*; check its address and your rights") as caught:
        upload("s3://lab/x", [tmp_path / "a.jsonl"])
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match=r"store s3://lab/x: .*; check its address and your rights"):
        download("s3://lab/x", ["a.jsonl"], tmp_path)
    done = sweep_here(write_tiny(tmp_path), "--on", "ray", "--store", "s3://lab/x", "--out", tmp_path / "runs", code=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("creditscope: store s3://lab/x: ")
    assert not list((tmp_path / "runs").glob("*.jsonl"))


def test_a_bucket_that_is_not_there_is_one_line(bucket, tmp_path):
    (tmp_path / "a.jsonl").write_text("x")
    with pytest.raises(CannotWrite, match=r"store s3://elsewhere/x: .*; check its address and your rights"):
        upload("s3://elsewhere/x", [tmp_path / "a.jsonl"])
