"""Links and pipes where our files should be: nothing is written through them, emptied, or waited for."""

import os

import pytest
from cases.fleets import features, spec

import creditscope as cs
from creditscope.errors import BadFile, CannotWrite, CreditscopeError
from creditscope.execution.folder import hold
from creditscope.execution.plan import PLAN_FILE
from creditscope.execution.remeasure import probe_checkpoint
from creditscope.records import LogWriter
from creditscope.records.files import write_together
from creditscope.records.load import load_logs

RUN = spec("bp", epochs=1)


def train(out, **more):
    return cs.train([RUN], out, data=features(), device="cpu", **more)


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "precious.txt"
    path.write_text("mine")
    return path


def test_a_linked_lock_empties_nothing(tmp_path, precious):
    out = tmp_path / "runs"
    out.mkdir()
    (out / ".lock").symlink_to(precious)
    with pytest.raises(CreditscopeError, match=r"\.lock: a link"):
        train(out)
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("name", [".lock", PLAN_FILE, f"{RUN.run_id}.jsonl", f"{RUN.run_id}.safetensors"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    train(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    if name.endswith(".safetensors"):  # set aside, and made again
        assert train(tmp_path, resume=True)[0].finished
        return
    with pytest.raises(CreditscopeError, match="not a regular file"):
        train(tmp_path, resume=True)


def test_a_linked_log_is_neither_gone_on_with_nor_appended_to(tmp_path):
    out, elsewhere = tmp_path / "runs", tmp_path / "elsewhere.jsonl"
    train(out)
    log = out / f"{RUN.run_id}.jsonl"
    log.rename(elsewhere)
    log.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with pytest.raises(BadFile, match="a link, and only the file itself"):
        train(out, resume=True)
    with pytest.raises(BadFile, match="a link, and only the file itself"):
        probe_checkpoint(out / f"{RUN.run_id}.safetensors")
    with pytest.raises(BadFile, match="a link, and only the file itself"):
        LogWriter(log).append(cs.RunLog.read(elsewhere).epochs[0])
    assert elsewhere.read_bytes() == before
    assert load_logs(out).logs[0].finished, "reading through links is what links are for"


def test_a_dangling_link_is_not_taken_for_a_missing_log(tmp_path):
    target = tmp_path / "outside.jsonl"
    out = tmp_path / "runs"
    out.mkdir()
    (out / f"{RUN.run_id}.jsonl").symlink_to(target)
    with pytest.raises(CreditscopeError):
        train(out, resume=True)
    assert not target.exists()


def test_a_lock_is_held_and_let_go(tmp_path):
    with hold(tmp_path), pytest.raises(CannotWrite, match="another creditscope is training there"), hold(tmp_path):
        pass
    with hold(tmp_path):
        pass


def test_files_that_belong_together_are_never_of_two_calls(tmp_path, monkeypatch):
    picture, data = tmp_path / "a.png", tmp_path / "a.csv"
    write_together({data: b"old", picture: b"old"})
    real, renamed = os.replace, []

    def killed(source, target):
        if renamed:
            raise KeyboardInterrupt
        renamed.append(target)
        real(source, target)

    with pytest.raises(KeyboardInterrupt):
        write_together({data: b"new", picture: b"new"}, killed)
    assert data.read_bytes() == b"new"
    assert not picture.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv"}
