import gzip
import struct

import numpy as np
import pytest

from creditscope.data import idx
from creditscope.data.idx import read_fashion_mnist, read_idx
from creditscope.errors import BadFile, BadInput


@pytest.mark.parametrize("dot", ["-", "."])
@pytest.mark.parametrize("tail", ["", ".gz"])
@pytest.mark.parametrize("sub", ["", "FashionMNIST/raw", "fashion-mnist"])
def test_every_layout_gives_the_same_arrays(tmp_path, fake_fashion, sub, tail, dot):
    fake_fashion.write(tmp_path / sub, tail, dot)
    splits = read_fashion_mnist(tmp_path)
    np.testing.assert_array_equal(splits.x_train[:, 0], fake_fashion.train[0])
    np.testing.assert_array_equal(splits.y_train, fake_fashion.train[1])
    np.testing.assert_array_equal(splits.x_test[:, 0], fake_fashion.test[0])
    np.testing.assert_array_equal(splits.y_test, fake_fashion.test[1])
    assert splits.x_train.shape == (7, 1, 28, 28)
    assert splits.x_train.dtype == np.uint8
    assert splits.y_train.dtype == np.int64


def test_environment_variable_and_its_absence(tmp_path, fake_fashion, monkeypatch):
    fake_fashion.write(tmp_path)
    monkeypatch.setenv("CREDITSCOPE_DATA", str(tmp_path))
    assert len(read_fashion_mnist(None).x_train) == 7
    monkeypatch.delenv("CREDITSCOPE_DATA")
    with pytest.raises(BadInput, match="set CREDITSCOPE_DATA to a folder that holds train-images-idx3-ubyte"):
        read_fashion_mnist(None)
    monkeypatch.setenv("CREDITSCOPE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"CREDITSCOPE_DATA .*nowhere is not a folder"):
        read_fashion_mnist(None)


def test_empty_folder_and_a_missing_file_say_what_to_put_where(tmp_path, fake_fashion):
    with pytest.raises(BadFile, match="holds no IDX file; put there train-images-idx3-ubyte"):
        read_fashion_mnist(tmp_path)
    fake_fashion.write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(BadFile, match="lacks t10k-labels-idx1-ubyte"):
        read_fashion_mnist(tmp_path)


@pytest.mark.parametrize("tail", ["", ".gz"])
@pytest.mark.parametrize("keep", [0, 3, 15, 16, 500, -1])
def test_truncated_files(tmp_path, fake_fashion, tail, keep):
    fake_fashion.write(tmp_path, tail)
    path = tmp_path / f"train-images-idx3-ubyte{tail}"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadFile, match="fetch the file again") as caught:
        read_fashion_mnist(tmp_path)
    assert "\n" not in str(caught.value)
    assert "train-images" in str(caught.value)


def test_trailing_bytes_are_refused(tmp_path, fake_fashion):
    fake_fashion.write(tmp_path)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(BadFile, match="promises 2,352 bytes, more came"):
        read_fashion_mnist(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (struct.pack(">4B3I", 0, 0, 8, 1, 2, 28, 28), "begins with 00000803, found 00000801"),
        (struct.pack(">4B3I", 0, 0, 13, 3, 2, 28, 28), "begins with 00000803, found 00000d03"),
        (b"\x89PNG" + bytes(12), "begins with 00000803, found 89504e47"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2, 32, 32), r"its header says \(2, 32, 32\); this is another data set"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 0, 28, 28), "wanted 1 to 200,000 images"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 28, 28), "wanted 1 to 200,000 images"),
    ],
)
def test_wrong_headers(tmp_path, header, message):
    path = tmp_path / "images"
    path.write_bytes(header + bytes(2 * 784))
    with pytest.raises(BadFile, match=message):
        read_idx(path, ndim=3)


def test_a_gzip_bomb_is_read_only_as_far_as_its_header_promises(tmp_path, monkeypatch):
    header = struct.pack(">4B3I", 0, 0, 8, 3, 2, 28, 28)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(header + bytes(50_000_000)))
    asked = []
    real = gzip.GzipFile.read

    def read(self, size=-1):
        asked.append(size)
        return real(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", read)
    with pytest.raises(BadFile, match="promises 1,568 bytes, more came"):
        read_idx(path, ndim=3)
    assert asked == [16, 1569]


def test_the_bound_is_far_above_the_published_size():
    assert idx.MAX_IMAGES > 60_000
    assert idx.MAX_IMAGES * 784 < 2**28


def test_labels_are_checked(tmp_path, fake_fashion):
    fake_fashion.write(tmp_path)
    path = tmp_path / "train-labels-idx1-ubyte"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"\x0a")
    with pytest.raises(BadFile, match=r"wanted labels 0\.\.9, found 10"):
        read_fashion_mnist(tmp_path)
    path.write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 6) + good[8:-1])
    with pytest.raises(BadFile, match="6 labels for 7 images"):
        read_fashion_mnist(tmp_path)


def test_a_folder_in_place_of_a_file_and_an_unreadable_gzip(tmp_path):
    with pytest.raises(BadFile, match="cannot be read"):
        read_idx(tmp_path, ndim=1)
    path = tmp_path / "labels.gz"
    path.write_bytes(b"not gzip at all")
    with pytest.raises(BadFile, match="gzip stream is damaged or truncated"):
        read_idx(path, ndim=1)
