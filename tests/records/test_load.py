"""Files and folders: good ones are read, bad ones are named, and nothing raises."""

import gc
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol import cases

from creditscope.records import LogWriter
from creditscope.records.load import MAX_JSON_BYTES, load_logs

GOLDEN = Path(__file__).parents[1] / "golden" / "published"


def write(log, path):
    writer = LogWriter(path)
    writer.create(log.header)
    for row in list(log.rows())[1:]:
        writer.append(row)
    return path


@pytest.fixture
def folder(tmp_path):
    """One good log of ours, one published, in a folder of a folder."""
    inner = tmp_path / "inner"
    inner.mkdir()
    write(cases.run("dfa", seed=1), inner / "dfa.jsonl")
    shutil.copy(GOLDEN / "dfa_pen_lam0.01_s42.json", tmp_path)
    return tmp_path


def test_folders_are_searched_and_files_recognised_by_content(folder):
    shutil.move(folder / "inner" / "dfa.jsonl", folder / "inner" / "ours.json")
    loaded = load_logs([folder])
    assert sorted(log.spec.method for log in loaded.logs) == ["dfa", "dfa+pen0.01"]
    assert loaded.skipped == ()


def test_what_is_written_is_read_back_whole(folder):
    (log,) = load_logs([folder / "inner"]).logs
    assert (log.epochs, log.probes, log.end) == tuple(
        getattr(cases.run("dfa", seed=1), n) for n in ("epochs", "probes", "end")
    )


BAD = {
    "empty.json": (b"", "empty file"),
    "blank.jsonl": (b" \n\n", "empty file"),
    "junk.json": (b"\x00\x01\x02junk", "not a log"),
    "list.json": (b"[1, 2, 3]", "not a log"),
    "other.json": (b'{"a": 1}', "not a log"),
    "truncated.json": (b'{"log": [{"epoch": 0, "h_L_norm": 9', "not JSON, or truncated"),
    "deep.json": (b'{"log":' + b"[" * 100_000, "not JSON, or truncated"),
    "huge_number.json": (b'{"log": [{"epoch": 0, "h_L_norm": ' + b"9" * 5000 + b"}]}", "not JSON, or truncated"),
    "utf16.json": ('{"log": 3}'.encode("utf-16"), "not a log"),
    "latin.json": (b'{"log": "\xe9"}', "not JSON, or truncated"),
    "negative.json": (b'{"log": [{"epoch": 0, "h_L_norm": -9}]}', "log[0].h_L_norm: a norm cannot be negative"),
    "junk.jsonl": (b"hello\nworld\n", "line 1 is not JSON"),
    "rows.jsonl": (b'{"kind": "epoch", "epoch": 0}\n', "header row"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_and_the_others_are_read(folder, name):
    data, why = BAD[name]
    (folder / name).write_bytes(data)
    loaded = load_logs([folder])
    assert len(loaded.logs) == 2
    (skipped,) = loaded.skipped
    assert Path(skipped.file).name == name
    assert why in skipped.why


def test_a_missing_path_an_empty_folder_and_a_pipe_are_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nothing").mkdir()
    loaded = load_logs([tmp_path / "absent.jsonl", tmp_path / "nothing", tmp_path / "pipe"])
    whys = [skipped.why for skipped in loaded.skipped]
    assert "No such file" in whys[0]
    assert "no .jsonl or .json file" in whys[1]
    assert "not a regular file" in whys[2]


def test_a_huge_file_is_refused_by_its_start_and_its_size(tmp_path):
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.write(b'{"log": [')
        file.truncate(2**30)  # sparse: a gigabyte that takes no disk
    junk = tmp_path / "junk.json"
    with junk.open("wb") as file:
        file.truncate(2**30)
    loaded = load_logs([tmp_path])
    assert loaded.logs == ()
    assert f"more than any published log ({MAX_JSON_BYTES})" in loaded.skipped[0].why
    assert "the file starts with" in loaded.skipped[1].why


def test_the_same_path_twice_is_read_once(folder):
    path = folder / "inner" / "dfa.jsonl"
    loaded = load_logs([path, folder / "inner", path])
    assert len(loaded.logs) == 1
    assert loaded.skipped == ()
    assert loaded.logs[0].problems == ()


def test_a_copy_is_read_once_and_said(folder):
    shutil.copy(folder / "inner" / "dfa.jsonl", folder / "copy.jsonl")
    loaded = load_logs([folder])
    assert len(loaded.logs) == 2
    assert loaded.skipped == ()
    assert any("the same run stands in dfa.jsonl too" in problem for log in loaded.logs for problem in log.problems)


def test_a_copy_that_goes_away_while_it_is_compared_is_no_copy(folder):
    copy = folder / "copy.jsonl"
    shutil.copy(folder / "inner" / "dfa.jsonl", copy)

    def lose(log):
        if log.name == "dfa.jsonl":
            copy.unlink()
        return log

    loaded = load_logs([folder], reduce=lose)
    assert [skipped.why.split(",")[1] for skipped in loaded.skipped] == [" which is judged instead"]


def test_logs_at_hand_come_first_and_are_not_reduced(folder):
    (held,) = load_logs([folder / "inner"]).logs
    loaded = load_logs([folder], reduce=lambda log: replace(log, epochs=()), held=[held])
    assert loaded.logs[0].epochs == held.epochs
    assert any("the same run stands in dfa.jsonl too" in problem for problem in loaded.logs[0].problems)
    assert [len(log.epochs) for log in loaded.logs[1:]] == [0]


def test_of_two_logs_of_one_run_the_one_that_got_further_is_kept(folder):
    whole = folder / "inner" / "dfa.jsonl"
    lines = whole.read_bytes().splitlines(keepends=True)
    (folder / "a_cut.jsonl").write_bytes(b"".join(lines[:3]))
    loaded = load_logs([folder])
    assert [log.name for log in loaded.logs if log.spec.method == "dfa"] == ["dfa.jsonl"]
    (skipped,) = loaded.skipped
    assert skipped.file.endswith("a_cut.jsonl")
    assert "dfa.jsonl, which got further" in skipped.why


def test_runs_without_a_seed_are_the_same_only_when_their_content_is(tmp_path):
    rows = [{"epoch": 0, "h_L_norm": 9.0, "acc_eval": 0.1}]
    for name, accuracy in (("a.json", 0.1), ("b.json", 0.1), ("c.json", 0.2)):
        rows[0]["acc_eval"] = accuracy
        (tmp_path / name).write_text(json.dumps({"log": rows}))
    assert [log.name for log in load_logs([tmp_path]).logs] == ["a.json", "c.json"]


def test_hidden_files_are_left_alone(folder):
    (folder / ".half-written.jsonl").write_bytes(b"junk")
    assert load_logs([folder]).skipped == ()


def test_collection_is_on_again_afterwards(folder):
    load_logs([folder])
    assert gc.isenabled()


def test_each_log_can_be_reduced_as_it_is_read(folder):
    seen = []
    load_logs([folder], reduce=lambda log: seen.append(log.name) or log)
    assert sorted(seen) == ["dfa.jsonl", "dfa_pen_lam0.01_s42.json"]


@given(data=st.binary(max_size=200), suffix=st.sampled_from([".json", ".jsonl"]), brace=st.booleans())
def test_no_bytes_raise(tmp_path_factory, data, suffix, brace):
    path = tmp_path_factory.mktemp("fuzz") / f"x{suffix}"
    path.write_bytes((b'{"log": [' if brace else b"") + data)
    loaded = load_logs([path])
    assert len(loaded.logs) + len(loaded.skipped) == 1


def test_one_path_need_not_stand_in_a_list(folder):
    assert load_logs(str(folder)).logs == load_logs(folder).logs == load_logs([folder]).logs
