"""CIFAR-100 from a folder and from the archive; every mistake is one line."""

import gzip
import hashlib
import io
import pickle
import tarfile
import warnings

import numpy as np
import pytest

from creditscope.data import cifar100, load_data
from creditscope.data.cifar100 import ARCHIVE, FOLDER, read_cifar100
from creditscope.errors import BadFile, BadInput

pytestmark = pytest.mark.filterwarnings("ignore:these files are readable")


def batch(n, seed, labels=None):
    draw = np.random.default_rng(seed)
    return {
        b"data": draw.integers(0, 256, (n, 3072), dtype=np.uint8),
        b"fine_labels": draw.integers(0, 100, n).tolist() if labels is None else labels,
        b"coarse_labels": draw.integers(0, 20, n).tolist(),
        b"filenames": [b"a.png"] * n,
        b"batch_label": b"one",
    }


@pytest.fixture
def files():
    return {name: pickle.dumps(batch(n, n), protocol=2) for name, n in (("train", 5), ("test", 3))}


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def packed(files, kind=tarfile.REGTYPE):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.type, member.linkname = len(data), kind, "/etc/passwd"
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(out.getvalue())


@pytest.mark.parametrize("place", ["", FOLDER, f"cifar100/{FOLDER}", "archive", "cifar100/archive"])
def test_every_place_gives_the_same_images_and_fine_labels(tmp_path, files, place):
    if place.endswith("archive"):
        write(tmp_path / place.removesuffix("archive"), {ARCHIVE: packed(files)})
    else:
        write(tmp_path / place, files)
    splits = read_cifar100(tmp_path)
    for x, y, wanted in ((splits.x_train, splits.y_train, batch(5, 5)), (splits.x_test, splits.y_test, batch(3, 3))):
        np.testing.assert_array_equal(x, wanted[b"data"].reshape(-1, 3, 32, 32))
        assert y.tolist() == wanted[b"fine_labels"]
        assert (x.dtype, y.dtype) == (np.uint8, np.int64)


def test_a_data_set_of_a_hundred_classes(tmp_path, files):
    write(tmp_path, files)
    data = load_data("cifar100", tmp_path)
    assert (data.name, data.classes, data.spec.shape) == ("cifar100", 100, (3, 32, 32))
    assert len(data.spec.class_counts) == 100
    assert sum(data.spec.class_counts) == 3


def test_other_files_than_the_published_are_said_to_be(tmp_path, files, monkeypatch):
    write(tmp_path, files)
    with pytest.warns(UserWarning, match="are not the published cifar100"):
        read_cifar100(tmp_path)
    monkeypatch.setattr(cifar100, "MD5", tuple(hashlib.md5(files[name]).hexdigest() for name in ("train", "test")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_cifar100(tmp_path)


class Runs:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


REFUSED = {
    "nothing": ({}, "holds no CIFAR-100 files; put there cifar-100-python/"),
    "one": ({"train": b""}, "lacks test; put it next to train"),
    "cut off": ({"train": pickle.dumps(batch(5, 5), 2)[:-9], "test": b""}, "train: a truncated or damaged CIFAR-100"),
    "cifar10": (
        {"train": pickle.dumps({b"data": b"x", b"labels": []}, 2), "test": b""},
        "train: not a CIFAR-100 python batch: it has no 'fine_labels'",
    ),
    "label": (
        {"train": pickle.dumps(batch(2, 1, [0, 100]), 2), "test": b""},
        r"train: wanted labels 0..99, found 0..100; this is not CIFAR-100",
    ),
    "fewer": ({"train": pickle.dumps(batch(2, 1, [0]), 2), "test": b""}, "train: 1 labels for 2 images"),
    "code": (
        {"train": pickle.dumps({b"data": Runs(), b"fine_labels": [0]}, 2), "test": b""},
        "train: not a CIFAR-100 python batch: it asks for '.*exec', which no batch of images needs",
    ),
    "no gzip": ({ARCHIVE: b"hello"}, "the archive is damaged or truncated; fetch the file again"),
    "no tar": ({ARCHIVE: gzip.compress(b"hello" * 1000)}, "the archive is damaged or truncated"),
    "torn": ({ARCHIVE: packed({"train": b"x" * 9000})[:-20]}, "the archive is damaged or truncated"),
    "other": ({ARCHIVE: packed({"else": b"x"})}, "holds no cifar-100-python/train; fetch"),
    "link": ({ARCHIVE: packed({"train": b"", "test": b""}, tarfile.SYMTYPE)}, "holds no cifar-100-python/train"),
}


@pytest.mark.parametrize(("held", "message"), REFUSED.values(), ids=list(REFUSED))
def test_mistakes_are_one_line(tmp_path, held, message):
    write(tmp_path, held)
    with pytest.raises(BadFile, match=message) as caught:
        read_cifar100(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar100, "MAX_UNPACKED", 2**16)
    write(tmp_path, {ARCHIVE: gzip.compress(bytes(2**17))})
    with pytest.raises(BadFile, match="unpacks to more than 65,536 bytes"):
        read_cifar100(tmp_path)


def test_without_a_folder_it_is_said_what_to_put_where(monkeypatch):
    monkeypatch.delenv("CREDITSCOPE_DATA", raising=False)
    with pytest.raises(BadInput, match=r"cifar100 is not bundled: pass data_dir= or set .* holds cifar-100-python/"):
        read_cifar100(None)
