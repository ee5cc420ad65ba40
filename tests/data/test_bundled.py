import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from creditscope.data.bundled import FOLDER, HASH_TEST, HASH_TRAIN, read_fashion_mini
from creditscope.data.dataset import content_hash
from creditscope.errors import BadFile


@pytest.fixture(scope="module")
def data():
    return read_fashion_mini()


def test_shapes_dtypes_and_spec(data):
    assert data.name == "fashion-mini"
    assert data.x_train.shape == (10_000, 1, 28, 28)
    assert data.x_test.shape == (2_000, 1, 28, 28)
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.dtype == torch.int64
    assert data.classes == 10
    assert data.spec.shape == (1, 28, 28)
    assert (data.spec.n_train, data.spec.n_test) == (10_000, 2_000)
    assert data.spec.class_counts == (200,) * 10


def test_hashes_are_the_pinned_ones_and_are_recomputed_from_the_tensors(data):
    assert (data.spec.hash_train, data.spec.hash_test) == (HASH_TRAIN, HASH_TEST)
    assert content_hash(data.x_train.numpy(), data.y_train.numpy()) == HASH_TRAIN
    assert content_hash(data.x_test.numpy(), data.y_test.numpy()) == HASH_TEST


def test_classes_are_balanced_and_mixed(data):
    assert torch.bincount(data.y_train).tolist() == [1000] * 10
    for start in range(0, 2000, 500):
        assert len(set(data.y_test[start : start + 128].tolist())) == 10


def test_pixels_look_like_fashion_mnist(data):
    """Mean and deviation near those of the full set, dark corners, and classes that differ as clothes do."""
    assert data.mean.item() == pytest.approx(0.286, abs=0.01)
    assert data.std.item() == pytest.approx(0.353, abs=0.01)
    x = data.x_train[:, 0].double()
    assert x[:, 0, 0].mean() < 1
    assert x[:, 14, 14].mean() > 80
    assert (data.x_train == 0).double().mean() == pytest.approx(0.5, abs=0.05)
    assert x.max() == 255
    means = torch.stack([x[data.y_train == label].mean(dim=0).flatten() for label in range(10)])
    distance = torch.cdist(x.flatten(1)[:2000], means)
    assert (distance.argmin(dim=1) == data.y_train[:2000]).double().mean() > 0.6


def test_no_image_is_in_both_splits(data):
    train = {image.tobytes() for image in data.x_train.numpy()}
    assert len(train) > 9_900
    assert not any(image.tobytes() in train for image in data.x_test.numpy())


def test_the_folder_is_small_and_carries_its_licence():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 6_000_000
    text = (FOLDER / "LICENSE").read_text()
    assert "Copyright (c) 2017 Zalando SE" in text
    assert "Permission is hereby granted, free of charge" in text


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(FOLDER, tmp_path / "copy")


def test_one_changed_pixel_is_noticed(copy):
    with Image.open(copy / "test.png") as picture:
        pixels = np.array(picture)
    pixels[100, 100] ^= 1
    Image.fromarray(pixels).save(copy / "test.png")
    with pytest.raises(BadFile, match=r"bundled images are damaged .* reinstall creditscope"):
        read_fashion_mini(copy)


def test_one_changed_label_is_noticed(copy):
    with np.load(copy / "labels.npz", allow_pickle=False) as labels:
        y_train, y_test = labels["y_train"].copy(), labels["y_test"]
    y_train[0] = (y_train[0] + 1) % 10
    np.savez(copy / "labels.npz", y_train=y_train, y_test=y_test)
    with pytest.raises(BadFile, match="content hash differs"):
        read_fashion_mini(copy)


@pytest.mark.parametrize("name", ["train.png", "labels.npz"])
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(BadFile, match=name):
        read_fashion_mini(copy)
