import hashlib
import struct

import numpy as np
import pytest
import torch

from creditscope.data.dataset import Splits, content_hash, make_dataset


def images(n: int = 2050, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 200, (n, channels, 4, 5), dtype=np.uint8)


def labels(n: int, classes: int = 4) -> np.ndarray:
    return np.arange(n, dtype=np.int64) % classes


def test_content_hash_spelled_out():
    x = np.arange(12, dtype=np.uint8).reshape(2, 1, 2, 3)
    y = np.array([1, 0], dtype=np.int64)
    text = b"uint8 2,1,2,3\n" + bytes(range(12)) + b"int64 2\n" + struct.pack("<qq", 1, 0)
    assert content_hash(x, y) == hashlib.sha256(text).hexdigest()
    f = np.array([[1.5, -2.0]], dtype=np.float32)
    text = b"float32 1,2\n" + struct.pack("<ff", 1.5, -2.0) + b"int64 1\n" + struct.pack("<q", 3)
    assert content_hash(f, np.array([3])) == hashlib.sha256(text).hexdigest()


def test_content_hash_sees_order_shape_dtype_labels_but_not_memory_layout():
    x, y = images(6), labels(6)
    base = content_hash(x, y)
    assert content_hash(np.asfortranarray(x), y) == base
    assert content_hash(x.astype(">u1"), y.astype(">i8")) == base
    others = [
        content_hash(x[::-1], y),
        content_hash(x, y[::-1]),
        content_hash(x.reshape(6, 3, 5, 4), y),
        content_hash(x.astype(np.float32), y),
        content_hash(x[:5], y[:5]),
    ]
    assert len({base, *others}) == 6


def test_make_dataset_statistics_against_numpy_float64():
    x = images()
    data = make_dataset("fake", Splits(x, labels(len(x)), x[:7], labels(7)), classes=4)
    scaled = x.astype(np.float64) / 255
    np.testing.assert_allclose(data.mean.numpy().ravel(), scaled.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(data.std.numpy().ravel(), scaled.std(axis=(0, 2, 3)), rtol=1e-6)
    assert data.mean.shape == data.std.shape == (3, 1, 1)
    assert data.mean.dtype == data.std.dtype == torch.float32


def test_make_dataset_spec_and_tensors():
    x = images(10, channels=1)
    data = make_dataset("fake", Splits(x, labels(10), x[:5], labels(5)), classes=6)
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.dtype == data.y_test.dtype == torch.int64
    np.testing.assert_array_equal(data.x_train.numpy(), x)
    np.testing.assert_array_equal(data.y_test.numpy(), labels(5))
    assert data.spec.model_dump() == {
        "name": "fake",
        "hash_train": content_hash(x, labels(10)),
        "hash_test": content_hash(x[:5], labels(5)),
        "shape": (1, 4, 5),
        "n_train": 10,
        "n_test": 5,
        "class_counts": (2, 1, 1, 1, 0, 0),
    }


def test_a_constant_channel_is_only_centred():
    x = images(10)
    x[:, 1] = 51
    data = make_dataset("fake", Splits(x, labels(10), x, labels(10)), classes=4)
    assert data.mean[1].item() == pytest.approx(0.2)
    assert data.std[1].item() == 1.0


@pytest.mark.parametrize("shape", [(9, 6), (9, 2, 3, 4)])
def test_features_have_neutral_statistics_that_broadcast(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    data = make_dataset("fake", Splits(x, labels(9), x, labels(9)), classes=4)
    assert torch.equal((data.x_train - data.mean) / data.std, torch.from_numpy(x))
    assert data.spec.shape == shape[1:]


def test_read_only_arrays_become_tensors_of_their_own():
    x = images(4)
    x.flags.writeable = False
    data = make_dataset("fake", Splits(x, labels(4), x, labels(4)), classes=4)
    data.x_train.zero_()
    assert x.any()


def test_to_moves_every_tensor_and_keeps_the_rest():
    x = images(4)
    data = make_dataset("fake", Splits(x, labels(4), x, labels(4)), classes=4)
    moved = data.to("meta")
    tensors = [moved.x_train, moved.y_train, moved.x_test, moved.y_test, moved.mean, moved.std]
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert (moved.name, moved.classes, moved.spec) == (data.name, data.classes, data.spec)
    assert data.x_train.device.type == "cpu"
