"""The store: finished files arrive whole, and what is there is not made again."""

import sys
from importlib import import_module

import pytest
from cases.sweeps import contents, tiny_runs

from creditscope.errors import BadInput, CannotWrite
from creditscope.execution.job import FleetJob
from creditscope.execution.plan import survey
from creditscope.execution.remote import RemoteContext, train_away
from creditscope.execution.store import download, upload
from creditscope.execution.sweep import fetch_done


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("spec"))


def test_finished_files_go_to_the_store_and_are_not_made_again(runs, tmp_path):
    store = f"file://{tmp_path}/store"
    remote = RemoteContext({"synthetic": "synthetic"}, device="cpu", store=store)
    handed_back = train_away(FleetJob(1, tuple(runs), threads=1), remote).files
    names = {f"{run.run_id}{kind}" for run in runs for kind in (".jsonl", ".safetensors")}
    assert {path.name for path in (tmp_path / "store").iterdir()} == names
    assert set(handed_back) == {name for name in names if name.endswith(".jsonl")}
    assert all((tmp_path / "store" / name).read_bytes() == data for name, data in handed_back.items())
    elsewhere = tmp_path / "elsewhere"
    assert fetch_done(store, runs, elsewhere) == 4
    assert contents(elsewhere) == contents(tmp_path / "store")
    assert survey(elsewhere, runs, resume=True, stored=True).plan(threads=1).jobs == ()
    assert fetch_done(store, runs, elsewhere) == 0


def test_what_the_folder_holds_is_never_replaced_from_the_store(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a.jsonl").write_text("theirs")
    (tmp_path / "a.jsonl").write_text("ours")
    assert download(f"file://{tmp_path}/store", ["a.jsonl"], tmp_path) == 0
    assert (tmp_path / "a.jsonl").read_text() == "ours"


def test_a_store_that_cannot_be_used_says_so_in_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CannotWrite, match=r"store file://.*: Not a directory; check its address"):
        upload(f"file://{tmp_path}/file/store", [tmp_path / "file"])
    with pytest.raises(BadInput, match="store nosuch://name: ") as caught:
        download("nosuch://user:secret@name", ["x"], tmp_path)
    assert "secret" not in str(caught.value)
    assert download(f"file://{tmp_path}/nothing", ["x"], tmp_path) == 0


@pytest.mark.parametrize("missing", ["fsspec", "fsspec.core", "s3fs"])
def test_without_the_packages_the_install_line_is_given(tmp_path, monkeypatch, missing):
    remembered = import_module("fsspec.registry")._registry
    monkeypatch.delitem(remembered, "s3", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(BadInput, match=r"^store s3://lab/x: .*pip install 'creditscope\[remote\]'$"):
        download("s3://lab/x", ["x"], tmp_path)
