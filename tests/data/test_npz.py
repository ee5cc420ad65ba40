import io
import zipfile

import numpy as np
import pytest
import torch

from creditscope.data import npz
from creditscope.data.dataset import content_hash
from creditscope.data.npz import read_arrays, read_npz
from creditscope.errors import BadFile, BadInput, CreditscopeError

RNG = np.random.default_rng(0)
Y = np.arange(12) % 3


def save(path, **changes):
    arrays = {
        "x_train": RNG.normal(size=(12, 5)).astype(np.float32),
        "y_train": Y,
        "x_test": RNG.normal(size=(6, 5)).astype(np.float32),
        "y_test": Y[:6],
    } | changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def images(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.npz"


def test_features_pass_through(file):
    x = RNG.normal(size=(12, 2, 3))
    data = read_npz(save(file, x_train=x, x_test=x[:6].astype(np.float16), y_train=Y.astype(np.uint8)))
    assert data.name == data.spec.name == "mine"
    assert data.classes == 3
    assert data.x_train.dtype == torch.float32
    np.testing.assert_array_equal(data.x_train.numpy(), x.astype(np.float32))
    np.testing.assert_array_equal(data.y_train.numpy(), Y)
    assert data.y_train.dtype == torch.int64
    assert data.spec.class_counts == (2, 2, 2)
    assert data.spec.shape == (2, 3)
    assert data.spec.hash_train == content_hash(x.astype(np.float32), Y.astype(np.int64))


def test_compressed_and_extra_arrays_are_fine(file):
    x = RNG.normal(size=(12, 5)).astype(np.float32)
    np.savez_compressed(file, x_train=x, y_train=Y, x_test=x, y_test=Y, names=np.array(["a"]))
    np.testing.assert_array_equal(read_npz(file).x_test.numpy(), x)


def test_image_layouts_have_one_form_and_one_hash(tmp_path):
    train, test = images(12, 3, 8, 9), images(6, 3, 8, 9)
    first = read_npz(save(tmp_path / "a.npz", x_train=train, x_test=test))
    last = read_npz(save(tmp_path / "b.npz", x_train=train.transpose(0, 2, 3, 1), x_test=test.transpose(0, 2, 3, 1)))
    np.testing.assert_array_equal(first.x_train.numpy(), train)
    assert torch.equal(first.x_train, last.x_train)
    assert (first.spec.hash_train, first.spec.hash_test) == (last.spec.hash_train, last.spec.hash_test)
    assert first.mean.shape == (3, 1, 1)
    grey = read_npz(save(tmp_path / "c.npz", x_train=train[:, 0], x_test=test[:, 0]))
    np.testing.assert_array_equal(grey.x_train.numpy(), train[:, :1])


def test_fortran_order_and_big_endian_arrays(file):
    train = np.asfortranarray(images(12, 3, 8, 9))
    data = read_npz(save(file, x_train=train, x_test=train[:6], y_train=Y.astype(">i2"), y_test=Y[:6].astype(">i8")))
    np.testing.assert_array_equal(data.x_train.numpy(), train)
    np.testing.assert_array_equal(data.y_train.numpy(), Y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, r"has no y_test \(it holds x_test, x_train, y_train\); save it with numpy.savez"),
        ({"y_train": Y.astype(float)}, r"y_train is float64; wanted integer labels 0\.\.classes-1"),
        ({"y_train": np.array(list("abcabcabcabc"))}, "y_train is <U1; wanted integer labels"),
        ({"y_train": Y == 0}, "y_train is bool; wanted integer labels"),
        ({"y_train": Y[:, None]}, r"y_train has shape \(12, 1\); wanted one label a sample"),
        ({"y_train": np.eye(3, dtype=int)[Y]}, r"y_train has shape \(12, 3\)"),
        ({"y_train": Y - 1}, r"y_train has labels -1\.\.1; wanted 0\.\.classes-1"),
        ({"y_train": Y + 1}, r"y_train goes up to 3 but never holds 0; number the classes 0\.\.2"),
        ({"y_train": Y * 2}, r"y_train goes up to 4 but never holds 1"),
        ({"y_train": Y + 10**15}, "never holds 0"),
        ({"y_train": np.full(12, 2**64 - 1, dtype=np.uint64)}, r"y_train has labels 18446744073709551615"),
        ({"y_train": Y * 0, "y_test": Y[:6] * 0}, "y_train holds one class only"),
        ({"y_test": Y[:6] + 1}, r"y_test has label 3, y_train only 0\.\.2"),
        ({"y_train": Y[:11]}, "x_train has 12 samples, y_train has 11 labels"),
        ({"y_test": Y[:5]}, "x_test has 6 samples, y_test has 5 labels"),
        ({"x_train": np.full((12, 5), np.nan, dtype=np.float32)}, "x_train has 60 values that are NaN"),
        ({"x_test": np.full((6, 5), np.inf, dtype=np.float32)}, "x_test has 30 values that are NaN, infinite"),
        ({"x_train": np.full((12, 5), 1e300)}, "x_train has 60 values that are NaN, infinite or beyond float32"),
        ({"x_train": np.zeros((12, 5), dtype=np.int64)}, "x_train is int64; save images as uint8"),
        ({"x_train": np.zeros((12, 5), dtype=np.complex64)}, "x_train is complex64"),
        ({"x_train": np.zeros(12)}, r"x_train has shape \(12,\); wanted \(n, \.\.\.\)"),
        ({"x_train": np.zeros((0, 5)), "y_train": Y[:0]}, r"x_train has shape \(0, 5\)"),
        ({"x_train": np.zeros((12, 0))}, r"x_train has shape \(12, 0\)"),
        ({"x_test": np.zeros((6, 4), dtype=np.float32)}, r"samples of float32 \(5,\), x_test of float32 \(4,\)"),
        ({"x_test": images(6, 8, 8)}, r"x_train has samples of float32 \(5,\), x_test of uint8 \(1, 8, 8\)"),
        ({"x_train": images(12, 5)}, r"x_train is uint8 of shape \(12, 5\); wanted images"),
        ({"x_train": images(12, 3, 8, 3)}, r"x_train is uint8 of shape \(12, 3, 8, 3\); wanted images"),
        ({"x_train": images(12, 8, 8, 8)}, r"x_train is uint8 of shape \(12, 8, 8, 8\)"),
        ({"x_train": images(2, 3, 8, 8, 8)}, r"x_train is uint8 of shape \(2, 3, 8, 8, 8\)"),
        ({"x_train": np.array([None, {}], dtype=object)}, "x_train holds Python objects; save a plain array"),
        ({"x_train": np.zeros(12, dtype="S0")}, "x_train"),
    ],
)
def test_bad_arrays_have_their_message(file, changes, message):
    with pytest.raises(BadInput, match=message) as caught:
        read_npz(save(file, **changes))
    assert "\n" not in str(caught.value)
    assert "mine.npz" in str(caught.value)


def test_object_arrays_never_reach_the_unpickler(file, monkeypatch):
    class Boom:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    save(file, x_train=np.array([Boom()], dtype=object))
    with pytest.raises(BadInput, match="holds Python objects"):
        read_npz(file)


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(BadFile, match=r"none\.npz: no such file; wanted an \.npz with x_train"):
        read_npz(tmp_path / "none.npz")
    for content in (b"", b"PK", b"not a zip at all", np.lib.format.MAGIC_PREFIX + bytes(200)):
        path = tmp_path / "foreign.npz"
        path.write_bytes(content)
        with pytest.raises(BadFile, match=r"not a readable \.npz"):
            read_npz(path)


def test_truncation_and_damage_anywhere_are_one_line(file):
    save(file)
    data = file.read_bytes()
    for end in range(0, len(data), 97):
        file.write_bytes(data[:end])
        with pytest.raises(BadFile):
            read_npz(file)
    for at in range(0, len(data), 31):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            read_npz(file)
        except CreditscopeError as error:
            assert "\n" not in str(error)  # noqa: PT017


def header_claiming(shape, body: bytes) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + body


@pytest.mark.parametrize("shape", [(10**12,), (10**9, 10**9), (-1, -4), (5,), (3,)])
def test_a_header_that_promises_more_than_the_file_holds(file, shape):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", header_claiming(shape, b"abcd"))
    with pytest.raises(BadFile, match=r"not a readable \.npz"):
        read_arrays(file, ("x",))


def test_a_header_of_code_is_not_run(file):
    text = b"{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (4,)}".ljust(117) + b"\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"abcd")
    with pytest.raises(BadFile, match=r"not a readable \.npz"):
        read_arrays(file, ("x",))


def test_a_zip_bomb_is_refused_from_its_directory(file, monkeypatch):
    np.savez_compressed(file, x=np.zeros(10_000_000, dtype=np.uint8), y=np.zeros(3))
    assert file.stat().st_size < 20_000
    monkeypatch.setattr(npz, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with pytest.raises(BadFile, match=r"unpack to 10,000,\d+ bytes, the limit is 1,000,000"):
        read_arrays(file, ("x", "y"))


def test_a_directory_that_understates_a_bomb_yields_no_more_than_it_states(file):
    np.savez_compressed(file, x=np.zeros(10_000_000, dtype=np.uint8))
    data = bytearray(file.read_bytes())
    true = (10_000_128).to_bytes(4, "little")
    at = data.rindex(true, 0, data.rindex(b"PK\x05\x06"))
    data[at : at + 4] = (1128).to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(BadFile, match=r"not a readable \.npz"):
        read_arrays(file, ("x",))


def test_arrays_not_asked_for_are_not_read(file):
    np.savez(file, x=np.arange(4), other=np.array([{}], dtype=object))
    assert read_arrays(file, ("x",))["x"].tolist() == [0, 1, 2, 3]


def test_structured_arrays_in_other_versions_are_refused(file):
    with pytest.warns(UserWarning, match="format 3.0"):
        save(file, x_train=np.zeros(12, dtype=[("名", "f4")]))
    with pytest.raises(BadInput, match=r"x_train is in \.npy version \(3, 0\)"):
        read_npz(file)
