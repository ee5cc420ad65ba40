import os

import pytest

from creditscope.data.files import data_folder, read_bytes
from creditscope.errors import BadFile, BadInput


def test_the_argument_wins_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDITSCOPE_DATA", str(tmp_path / "other"))
    assert data_folder("cifar10", tmp_path, "files") == tmp_path


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("CREDITSCOPE_DATA", "")
    with pytest.raises(BadInput, match=r"cifar10 is not bundled: pass data_dir= or set"):
        data_folder("cifar10", None, "files")


def test_a_file_is_not_a_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(BadInput, match="file is not a folder; name one that holds files"):
        data_folder("cifar10", path, "files")


def test_read_bytes_is_bounded(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(BadFile, match="wanted at most 4 bytes, found more"):
        read_bytes(path, 4)
    with pytest.raises(BadFile, match="wanted at most 100 bytes"):
        read_bytes(type(path)(os.devnull).with_name("zero"), 100)


def test_read_bytes_names_what_cannot_be_read(tmp_path):
    with pytest.raises(BadFile, match=r"gone: cannot be read \(No such file or directory\)"):
        read_bytes(tmp_path / "gone", 5)
    with pytest.raises(BadFile, match="cannot be read"):
        read_bytes(tmp_path, 5)
