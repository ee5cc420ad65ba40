import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from creditscope.data import cifar10
from creditscope.data.cifar10 import read_cifar10
from creditscope.data.dataset import content_hash
from creditscope.errors import BadFile, BadInput

SUBFOLDERS = {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py", "mosaics": "cifar10"}


def test_every_layout_gives_the_same_arrays_and_one_hash(tmp_path, fake_cifar, write_cifar):
    write_cifar(tmp_path)
    splits = read_cifar10(tmp_path)
    train = fake_cifar.x[:5].reshape(-1, 3, 32, 32)
    np.testing.assert_array_equal(splits.x_train, train)
    np.testing.assert_array_equal(splits.y_train, fake_cifar.y[:5].reshape(-1))
    np.testing.assert_array_equal(splits.x_test, fake_cifar.x[5])
    np.testing.assert_array_equal(splits.y_test, fake_cifar.y[5])
    assert splits.x_train.dtype == np.uint8
    assert splits.y_train.dtype == np.int64
    want = content_hash(train, fake_cifar.y[:5].reshape(-1).astype(np.int64))
    assert content_hash(splits.x_train, splits.y_train) == want


@pytest.mark.parametrize("prefix", ["", "cifar10"])
@pytest.mark.parametrize("kind", ["binary", "python", "mosaics"])
def test_the_usual_subfolders_are_found(tmp_path, cifar_folder, fake_cifar, kind, prefix):
    files = list(cifar_folder(kind).iterdir())
    target = tmp_path / "data" / prefix / ("" if prefix and kind == "mosaics" else SUBFOLDERS[kind])
    target.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.move(path, target / path.name)
    np.testing.assert_array_equal(read_cifar10(tmp_path / "data").x_test, fake_cifar.x[5])


def test_empty_missing_and_unset_folders_say_what_to_put_where(tmp_path, monkeypatch, cifar_folder):
    monkeypatch.delenv("CREDITSCOPE_DATA", raising=False)
    with pytest.raises(BadInput, match=r"pass data_dir= .* cifar-10-batches-bin/"):
        read_cifar10(None)
    with pytest.raises(BadInput, match="is not a folder; name one that holds cifar-10-batches-bin/"):
        read_cifar10(tmp_path / "nowhere")
    with pytest.raises(BadFile, match="holds no CIFAR-10 files; put there cifar-10-batches-bin/"):
        read_cifar10(tmp_path)
    monkeypatch.setenv("CREDITSCOPE_DATA", str(cifar_folder("binary")))
    assert len(read_cifar10(None).x_train) == 20


@pytest.mark.parametrize(
    ("kind", "name"), [("binary", "data_batch_3.bin"), ("python", "data_batch_3"), ("mosaics", "train_3.webp")]
)
def test_one_missing_file_is_named(cifar_folder, kind, name):
    folder = cifar_folder(kind)
    (folder / name).unlink()
    with pytest.raises(BadFile, match=f"lacks {name}; put it next to the others"):
        read_cifar10(folder)


def test_missing_labels_of_the_mosaics_are_named(cifar_folder):
    folder = cifar_folder("mosaics")
    (folder / "labels.npz").unlink()
    with pytest.raises(BadFile, match=r"labels\.npz: cannot be read"):
        read_cifar10(folder)


@pytest.mark.parametrize("keep", [0, 1, 3072, 5000, -1])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("binary", "data_batch_2.bin"), ("python", "data_batch_2"), ("mosaics", "test.webp"), ("mosaics", "labels.npz")],
)
def test_truncated_files_are_named_in_one_line(cifar_folder, kind, name, keep):
    folder = cifar_folder(kind)
    data = (folder / name).read_bytes()
    if keep >= len(data):
        keep = len(data) // 2
    (folder / name).write_bytes(data[:keep])
    with pytest.raises(BadFile, match="again") as caught:
        read_cifar10(folder)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_a_binary_batch_cut_between_two_images(cifar_folder):
    folder = cifar_folder("binary")
    path = folder / "data_batch_4.bin"
    path.write_bytes(path.read_bytes()[: 3 * 3073])
    with pytest.raises(BadFile, match=r"data_batch_4\.bin: 3 images, but data_batch_1\.bin has 4"):
        read_cifar10(folder)


def test_a_label_outside_the_classes(cifar_folder):
    folder = cifar_folder("binary")
    path = folder / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    with pytest.raises(BadFile, match=r"test_batch\.bin: wanted labels 0\.\.9, found .*10; this is not CIFAR-10"):
        read_cifar10(folder)


def test_a_file_larger_than_any_batch_is_refused(cifar_folder, monkeypatch):
    folder = cifar_folder("binary")
    monkeypatch.setattr(cifar10, "_MAX_FILE", 5000)
    with pytest.raises(BadFile, match="wanted at most 5,000 bytes"):
        read_cifar10(folder)


@pytest.mark.parametrize(
    "batch",
    [
        {"data": np.zeros((4, 3072), dtype=np.int64), "labels": [0, 1, 2, 3]},
        {"data": np.zeros((4, 3071), dtype=np.uint8), "labels": [0, 1, 2, 3]},
        {"data": np.zeros((4, 3, 1024), dtype=np.uint8), "labels": [0, 1, 2, 3]},
        {"data": np.zeros((4, 3072), dtype=np.uint8), "labels": np.zeros((2, 2), dtype=np.int64)},
    ],
)
def test_python_batches_of_another_shape(cifar_folder, batch):
    folder = cifar_folder("python")
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(BadFile, match=r"data_batch_1: wanted uint8 data of shape \(n, 3072\)"):
        read_cifar10(folder)


def test_python_batch_with_fewer_labels_than_images(cifar_folder):
    folder = cifar_folder("python")
    batch = {"data": np.zeros((4, 3072), dtype=np.uint8), "labels": [0, 1, 2]}
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(BadFile, match="3 labels for 4 images"):
        read_cifar10(folder)


def test_sha256sums_are_checked_where_present(cifar_folder):
    folder = cifar_folder("mosaics+sums")
    with Image.open(folder / "train_2.webp") as picture:
        changed = picture.copy()
    red, green, blue = changed.getpixel((5, 5))
    changed.putpixel((5, 5), (red ^ 1, green, blue))
    changed.save(folder / "train_2.webp", lossless=True, exact=True)
    with pytest.raises(BadFile, match=r"train_2\.webp: SHA-256 .* SHA256SUMS says"):
        read_cifar10(folder)
    (folder / "SHA256SUMS").unlink()
    assert len(read_cifar10(folder).x_train) == 20


def test_sha256sums_covers_the_labels_and_every_file(cifar_folder):
    folder = cifar_folder("mosaics+sums")
    sums = (folder / "SHA256SUMS").read_text()
    np.savez(folder / "labels.npz", y_train=np.zeros(20, dtype=np.uint8), y_test=np.zeros(4, dtype=np.uint8))
    with pytest.raises(BadFile, match=r"labels\.npz: SHA-256"):
        read_cifar10(folder)
    (folder / "SHA256SUMS").write_text("".join(line for line in sums.splitlines(True) if "labels" not in line))
    with pytest.raises(BadFile, match=r"labels\.npz: SHA256SUMS next to it has no line for it"):
        read_cifar10(folder)
    (folder / "SHA256SUMS").write_text("nonsense\n")
    with pytest.raises(BadFile, match="SHA256SUMS: wanted lines of a sum and a file name"):
        read_cifar10(folder)


def test_binary_mode_stars_in_sha256sums(cifar_folder):
    folder = cifar_folder("mosaics+sums")
    path = folder / "SHA256SUMS"
    path.write_text(
        path.read_text()
        .replace("  ", " *")
        .upper()
        .replace(".WEBP", ".webp")
        .replace("TRAIN", "train")
        .replace("TEST", "test")
        .replace("LABELS.NPZ", "labels.npz")
    )
    assert len(read_cifar10(folder).x_train) == 20


@pytest.mark.parametrize(
    ("y_train", "message"),
    [
        (np.zeros(19, dtype=np.uint8), "19 training labels for 20 images"),
        (np.zeros(20), r"wanted y_train as integers \(n,\), found float64"),
        (np.zeros((4, 5), dtype=np.uint8), r"wanted y_train as integers \(n,\)"),
        (np.full(20, -1), r"wanted labels 0\.\.9, found -1"),
    ],
)
def test_mosaic_labels_are_checked(cifar_folder, y_train, message):
    folder = cifar_folder("mosaics")
    np.savez(folder / "labels.npz", y_train=y_train, y_test=np.zeros(4, dtype=np.uint8))
    with pytest.raises(BadFile, match=message):
        read_cifar10(folder)
