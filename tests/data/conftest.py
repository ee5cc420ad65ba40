"""Small fakes of every layout, written here byte by byte, so that no test needs a download."""

import gzip
import hashlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CIFAR_NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
MOSAIC_NAMES = [*(f"train_{number}.webp" for number in range(1, 6)), "test.webp"]


@dataclass(frozen=True)
class FakeCifar:
    """Six batches: images (6, n, 3, 32, 32) and labels (6, n), n a square."""

    x: np.ndarray
    y: np.ndarray

    def write_binary(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, images, labels in zip(CIFAR_NAMES, self.x, self.y, strict=True):
            with (folder / f"{name}.bin").open("wb") as file:
                for image, label in zip(images, labels, strict=True):
                    file.write(bytes([label]) + image.tobytes())

    def write_python(self, folder: Path, dump: Callable[[dict], bytes]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, images, labels in zip(CIFAR_NAMES, self.x, self.y, strict=True):
            batch = {
                b"batch_label": b"a batch",
                b"labels": [int(label) for label in labels],
                b"data": images.reshape(len(images), 3072),
                b"filenames": [b"file_%d.png" % number for number in range(len(images))],
            }
            (folder / name).write_bytes(dump(batch))

    def write_mosaics(self, folder: Path, sums: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        side = round(self.x.shape[1] ** 0.5)
        for name, images in zip(MOSAIC_NAMES, self.x, strict=True):
            picture = Image.new("RGB", (32 * side, 32 * side))
            for index, image in enumerate(images):
                tile = Image.fromarray(np.ascontiguousarray(np.moveaxis(image, 0, -1)))
                picture.paste(tile, (index % side * 32, index // side * 32))
            picture.save(folder / name, lossless=True, exact=True)
        labels = self.y.astype(np.uint8)
        np.savez(folder / "labels.npz", y_train=labels[:5].reshape(-1), y_test=labels[5], class_names=np.array(["a"]))
        if sums:
            lines = [
                f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
                for name in [*MOSAIC_NAMES, "labels.npz"]
            ]
            (folder / "SHA256SUMS").write_text("".join(lines))


def python2_pickle(batch: dict) -> bytes:
    """A batch as Python 2 and its numpy wrote it: protocol 2, bytes as strings, numpy.core, memo entries."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    data = batch[b"data"]
    rows, columns = data.shape
    raw = data.tobytes()
    out = b"\x80\x02}q\x01("
    out += text(b"batch_label") + b"q\x02" + text(batch[b"batch_label"]) + b"q\x03"
    out += text(b"labels") + b"q\x04]q\x05(" + b"".join(b"K" + bytes([v]) for v in batch[b"labels"]) + b"e"
    out += text(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85"
    out += text(b"b") + b"\x87Rq\x09(K\x01" + b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns)
    out += b"\x86cnumpy\ndtype\nq\x0a" + text(b"u1") + b"K\x00K\x01\x87Rq\x0b(K\x03" + text(b"|") + b"NNN"
    out += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    out += text(b"filenames") + b"q\x0c]q\x0d(" + b"".join(text(name) for name in batch[b"filenames"]) + b"eu."
    return out


@pytest.fixture
def fake_cifar() -> FakeCifar:
    rng = np.random.default_rng(5)
    return FakeCifar(
        rng.integers(0, 256, (6, 4, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, (6, 4), dtype=np.uint8)
    )


@pytest.fixture(params=["binary", "python2", "python-p2", "python-p4", "python-p5", "mosaics"])
def write_cifar(request, fake_cifar) -> Callable[[Path], None]:
    """Writes the same fake CIFAR-10 into a folder, once in each layout."""
    kind = request.param
    if kind == "binary":
        return fake_cifar.write_binary
    if kind == "mosaics":
        return lambda folder: fake_cifar.write_mosaics(folder, sums=True)
    if kind == "python2":
        return lambda folder: fake_cifar.write_python(folder, python2_pickle)
    protocol = int(kind[-1])
    return lambda folder: fake_cifar.write_python(folder, lambda batch: pickle.dumps(batch, protocol=protocol))


@pytest.fixture
def cifar_folder(tmp_path: Path, fake_cifar: FakeCifar) -> Callable[..., Path]:
    """A folder with one named layout, for tests that then damage it."""

    def make(kind: str) -> Path:
        if kind == "binary":
            fake_cifar.write_binary(tmp_path)
        elif kind == "python":
            fake_cifar.write_python(tmp_path, python2_pickle)
        else:
            fake_cifar.write_mosaics(tmp_path, sums=kind == "mosaics+sums")
        return tmp_path

    return make


@dataclass(frozen=True)
class FakeFashion:
    """Images (n, 28, 28) and labels of both splits."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]

    def write(self, folder: Path, tail: str = "", dot: str = "-") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for part, (x, y) in (("train", self.train), ("t10k", self.test)):
            for name, array in ((f"{part}-images{dot}idx3-ubyte", x), (f"{part}-labels{dot}idx1-ubyte", y)):
                header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
                data = header + array.tobytes()
                (folder / (name + tail)).write_bytes(gzip.compress(data) if tail else data)


@pytest.fixture
def fake_fashion() -> FakeFashion:
    rng = np.random.default_rng(6)
    return FakeFashion(
        (rng.integers(0, 256, (7, 28, 28), dtype=np.uint8), rng.integers(0, 10, 7, dtype=np.uint8)),
        (rng.integers(0, 256, (3, 28, 28), dtype=np.uint8), rng.integers(0, 10, 3, dtype=np.uint8)),
    )
