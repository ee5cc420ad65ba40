import os
import pickle
import pickletools
import struct
import tracemalloc

import numpy as np
import pytest

from creditscope.data import cifar_pickle
from creditscope.data.cifar_pickle import decode_batch
from creditscope.errors import BadFile

GOOD = {"data": np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072), "labels": [3, 9]}


class Runs:
    """Pickles to a call of a function of one's choice."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("keys", ["text", "bytes"])
def test_pickles_of_every_protocol(protocol, order, keys):
    batch = {**GOOD, "data": np.asarray(GOOD["data"], order=order)}
    if keys == "bytes":
        batch = {key.encode(): value for key, value in batch.items()}
    x, y = decode_batch(pickle.dumps(batch, protocol=protocol), "batch")
    np.testing.assert_array_equal(x, GOOD["data"])
    assert x.dtype == np.uint8
    assert y.tolist() == [3, 9]
    assert y.dtype == np.int64


@pytest.mark.parametrize("dtype", ["<i8", ">i4", "u1", "<u2"])
def test_labels_as_an_array(dtype):
    batch = {**GOOD, "labels": np.array([3, 9], dtype=dtype)}
    assert decode_batch(pickle.dumps(batch, protocol=2), "batch")[1].tolist() == [3, 9]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("where", ["top", "data", "labels", "key"])
def test_a_pickle_that_would_run_a_command_is_refused(tmp_path, protocol, where):
    proof = tmp_path / "proof"
    hostile = Runs(os.system, f"touch {proof}")
    batch = {
        "top": hostile,
        "data": {**GOOD, "data": hostile},
        "labels": {**GOOD, "labels": [1, hostile]},
        "key": {**GOOD, "x": {"y": hostile}},
    }[where]
    data = pickle.dumps(batch, protocol=protocol)
    with pytest.raises(BadFile, match="not a CIFAR-10 python batch") as caught:
        decode_batch(data, "batch")
    assert not proof.exists()
    assert "\n" not in str(caught.value)
    if protocol >= 2:
        assert "it asks for 'posix.system', which no batch of images needs" in str(caught.value)


@pytest.mark.parametrize("function", [eval, exec, open, getattr, __import__, np.load, np.frombuffer])
def test_other_callables_are_refused_by_name(function):
    with pytest.raises(BadFile, match="it asks for"):
        decode_batch(pickle.dumps({**GOOD, "data": Runs(function, "1")}, protocol=2), "batch")


def test_a_global_split_over_the_stack_is_refused():
    data = b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R."
    assert "STACK_GLOBAL" in {opcode.name for opcode, _, _ in pickletools.genops(data)}
    with pytest.raises(BadFile, match=r"it asks for 'os\.system'"):
        decode_batch(data, "batch")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"(ios\nsystem\n.", "opcode INST"),
        (b"(cos\nsystem\no.", r"os\.system"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "opcode NEWOBJ"),
        (b"\x80\x02\x82\x01.", "opcode EXT1"),
        (b"Pid\n.", "opcode PERSID"),
        (b"\x80\x02cnumpy\nndarray\nNR.", "wanted tuple, found nonetype"),
        (b"\x80\x02NNR.", "wanted name"),
        (b"\x80\x02]Nb.", "wanted object, found list"),
        (b"\x80\x02NK\x01a.", "wanted list"),
        (b"\x80\x02]NNs.", "wanted dict"),
        (b"\x80\x02R.", "stack runs empty"),
        (b"\x80\x02}K\x01K\x02s.", "a key of type int"),
        (b"\x80\x02}))s.", "a key of type tuple"),
        (b"\x80\x02].", "it is not a dict"),
        (b"\x80\x02}.", "it has no 'data'"),
    ],
)
def test_malformed_or_hostile_opcodes(data, message):
    with pytest.raises(BadFile, match=message):
        decode_batch(data, "batch")


@pytest.mark.parametrize("data", [b"", b".", b"\x80\x02", b"\x80\x02u.", b"\x80\x02h\x05.", b"\xff\xff", b"}(K\x01u."])
def test_damaged_pickles(data):
    with pytest.raises(BadFile, match="truncated or damaged CIFAR-10 python batch"):
        decode_batch(data, "batch")


def test_truncation_at_any_byte_is_one_line():
    data = pickle.dumps({"data": GOOD["data"][:1, :40], "labels": [1]}, protocol=2)
    for end in range(len(data)):
        with pytest.raises(BadFile) as caught:
            decode_batch(data[:end], "batch")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "replacement",
    [
        np.array([1.0, 2.0]),
        np.array(["a", "b"]),
        np.array([None, {}], dtype=object),
        np.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")]),
        [1.5, 2],
        [True, 2],
        "text",
        None,
    ],
)
def test_labels_of_another_kind(replacement):
    with pytest.raises(BadFile):
        decode_batch(pickle.dumps({**GOOD, "labels": replacement}, protocol=2), "batch")


@pytest.mark.parametrize("shape", [(2, 3071), (10**9, 10**9), (-2, -3072), (2**62, 4)])
def test_an_array_whose_shape_does_not_fit_its_bytes(shape):
    true, lie = pickle.dumps((2, 3072), protocol=2)[2:-1], pickle.dumps(shape, protocol=2)[2:-1]
    strip = lambda data: data[: data.index(b"q")]  # noqa: E731
    data = pickle.dumps(GOOD, protocol=2)
    assert strip(true) in data
    with pytest.raises(BadFile, match="does not fit its 6,144 bytes"):
        decode_batch(data.replace(strip(true), strip(lie), 1), "batch")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02B" + struct.pack("<I", 2**32 - 1) + b"abc.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b"abc.",
        b"\x80\x05\x96" + struct.pack("<Q", 2**60) + b"abc.",
        b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"N.",
    ],
)
def test_lengths_and_memo_slots_reserve_no_memory(data):
    tracemalloc.start()
    try:
        with pytest.raises(BadFile):
            decode_batch(data, "batch")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_the_number_of_opcodes_is_bounded(monkeypatch):
    monkeypatch.setattr(cifar_pickle, "MAX_OPCODES", 100)
    with pytest.raises(BadFile, match="more than 100 opcodes"):
        decode_batch(b"\x80\x02" + b"N" * 100 + b".", "batch")
