"""Files that others made: damaged or forged, each is read or refused in one line. No code runs, no memory explodes."""

import gzip
import io
import os
import pickle

import numpy as np
import pytest
import torch
from cases import specs
from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.data.cifar_pickle import decode_batch
from creditscope.data.npz import read_npz
from creditscope.engine.checkpoint import encode_checkpoint, read_checkpoint, saved_epoch
from creditscope.errors import CreditscopeError
from creditscope.records import LogWriter
from creditscope.records.load import load_logs, read_file
from creditscope.sweeps.spec_file import parse_spec

EXAMPLES = int(os.environ.get("CREDITSCOPE_FUZZ", "120"))  # a larger number for a longer search


def log_bytes(folder):
    writer = LogWriter(folder / "whole.jsonl")
    writer.create(specs.header())
    for row in (specs.epoch(0), specs.probe(0), specs.epoch(1), specs.end(1)):
        writer.append(row)
    return writer.path.read_bytes()


def batch_bytes():
    rows = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    return pickle.dumps({b"data": rows, b"labels": [3, 7], b"filenames": [b"a", b"b"]}, protocol=2)


def npz_bytes():
    file = io.BytesIO()
    x, y = np.zeros((4, 5), np.float32), np.array([0, 1, 0, 1])
    np.savez_compressed(file, x_train=x, y_train=y, x_test=x, y_test=y)
    return file.getvalue()


def checkpoint_bytes():
    return encode_checkpoint({"param/w": torch.ones(3, 2)}, {"epoch": "3", "spec": "{}"})


@st.composite
def damaged(draw, whole):
    """Bytes that were cut, overwritten, doubled or mixed with markers that mean something to a parser."""
    data = bytearray(whole)
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


def survives(read):
    """Read, or refuse with an error of ours in one line."""
    try:
        read()
    except CreditscopeError as error:
        single_line(error)


def single_line(error):
    assert str(error)
    assert "\n" not in str(error)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def whole_log(folder):
    return log_bytes(folder)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damaged_logs(folder, whole_log, data):
    path = folder / data.draw(st.sampled_from(["x.jsonl", "x.json"]))
    path.write_bytes(data.draw(damaged(whole_log)))
    survives(lambda: read_file(path))
    load_logs([path])


@settings(max_examples=EXAMPLES)
@given(data=damaged(gzip.compress(b'{"kind": "header"}\n' * 40)))
def test_damaged_compressed_logs(folder, data):
    path = folder / "x.jsonl.gz"
    path.write_bytes(data)
    survives(lambda: read_file(path))


@settings(max_examples=EXAMPLES)
@given(data=damaged(batch_bytes()))
def test_damaged_cifar_batches(data):
    survives(lambda: decode_batch(data, "data_batch_1"))


@settings(max_examples=EXAMPLES)
@given(data=damaged(npz_bytes()))
def test_damaged_npz_files(folder, data):
    path = folder / "x.npz"
    path.write_bytes(data)
    survives(lambda: read_npz(path))


@settings(max_examples=EXAMPLES)
@given(data=damaged(checkpoint_bytes()))
def test_damaged_checkpoints(folder, data):
    path = folder / "x.safetensors"
    path.write_bytes(data)
    survives(lambda: saved_epoch(path, read_checkpoint(path)[1]))


@settings(max_examples=EXAMPLES)
@given(data=damaged(b"preset: demo\nmethods: [bp, dfa]\nset: {epochs: 3, lr: 1e-3}\ngrid: {penalty: [0, 1e-2]}\n"))
def test_damaged_specs(data):
    survives(lambda: parse_spec("x.yaml", data.decode("latin-1")))


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
