"""Files that others made: damaged or forged, each is read or refused in one line. No code runs, no memory explodes."""

import os
import pickle

import numpy as np
import pytest
from cases.hostile import CRASHERS, LOADERS
from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.data.cifar_pickle import decode_batch
from creditscope.data.npz import read_npz
from creditscope.errors import CreditscopeError

EXAMPLES = int(os.environ.get("CREDITSCOPE_FUZZ", "120"))  # a larger number for a longer search


@st.composite
def damaged(draw, whole):
    """Bytes that were cut, overwritten, doubled or mixed with markers that mean something to a parser."""
    data = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["cut", "write", "insert", "double", "drop"])):
            case "cut":
                del data[at:]
            case "write":
                new = draw(st.binary(min_size=1, max_size=8))
                data[at : at + len(new)] = new
            case "insert":
                data[at:at] = draw(st.sampled_from(MARKS) | st.binary(max_size=8))
            case "double":
                data[at:at] = data[at : at + draw(st.integers(1, 200))]
            case "drop":
                del data[at : at + draw(st.integers(1, 50))]
    return bytes(data)


MARKS = [
    *(b"\xff" * 8, b"\x00" * 8, b'{"', b"[[[[", b"NaN", b"1e999", b"-", b"9" * 400, b"\n", b'"\\ud800"', b"null"),
    *(b"cos\nsystem\n(S'x'\ntR.", b"\x8c\x05posix", b"R", b"\x81", b"\x92", b"PK\x03\x04", b"\x1f\x8b", b"../../x"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.mark.parametrize("kind", LOADERS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damaged_files(folder, kind, data):
    LOADERS[kind].survives(data.draw(damaged(LOADERS[kind].whole())), folder)


@pytest.mark.parametrize("kind", LOADERS)
def test_a_whole_file_is_read(folder, kind):
    path = folder / LOADERS[kind].name
    path.write_bytes(LOADERS[kind].whole()[0])
    LOADERS[kind].read(path)


def test_what_once_broke_a_loader(folder):
    for path in sorted(CRASHERS.glob("*/*")):
        LOADERS[path.parent.name].survives(path.read_bytes(), folder)


class Evil:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("touch pwned",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_runs_no_code(folder, protocol, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(CreditscopeError):
        decode_batch(pickle.dumps({b"data": Evil(), b"labels": [1]}, protocol=protocol), "data_batch_1")
    np.savez("evil.npz", x_train=np.array([Evil()], dtype=object), y_train=[0], x_test=[0], y_test=[0])
    with pytest.raises(CreditscopeError):
        read_npz(folder / "evil.npz")
    assert not (folder / "pwned").exists()
