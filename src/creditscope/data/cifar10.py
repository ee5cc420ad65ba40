"""CIFAR-10 from a folder, in the four layouts people have."""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from creditscope.data.cifar_pickle import PIXELS, check_labels, decode_images
from creditscope.data.dataset import Array, Dataset, Splits, make_dataset
from creditscope.data.files import data_folder, read_bytes
from creditscope.data.mosaic import decode_mosaic
from creditscope.data.npz import read_arrays
from creditscope.errors import BadFile

_MAX_FILE = 2**27  # four times a published batch
_WANTED = (
    "cifar-10-batches-bin/ (unpacked from cifar-10-binary.tar.gz), cifar-10-batches-py/ (from "
    "cifar-10-python.tar.gz), or train_1.webp .. train_5.webp, test.webp and labels.npz"
)


class _Layout(NamedTuple):
    """One way in which CIFAR-10 lies in a folder."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    read: Callable[[Path, tuple[str, ...]], list[tuple[Array, Array]]]


def read_cifar10(data_dir: Path | None) -> Splits:
    """Read CIFAR-10: the binary batches, else the python batches, else the WebP mosaics, whichever is found first.

    Args:
        data_dir: The folder, or None for the environment variable.
    """
    root = data_folder("cifar10", data_dir, _WANTED)
    for layout in _LAYOUTS:
        for folder in (root / part for part in layout.folders):
            missing = [name for name in layout.files if not os.path.isfile(folder / name)]
            if len(missing) == len(layout.files):
                continue
            if missing:
                raise BadFile(f"cifar10: {folder} lacks {', '.join(missing)}; put it next to the others")
            return _join(folder, layout)
    raise BadFile(f"cifar10: {root} holds no CIFAR-10 files; put there {_WANTED}")


def _join(folder: Path, layout: _Layout) -> Splits:
    batches = layout.read(folder, layout.files)
    for name, (x, y) in zip(layout.files, batches, strict=True):
        check_labels(x, y, str(folder / name), "CIFAR-10", 10)
        if name != layout.files[-1] and len(x) != len(batches[0][0]):
            raise BadFile(
                f"{folder / name}: {len(x):,} images, but {layout.files[0]} has {len(batches[0][0]):,}; "
                "one of them is truncated: fetch it again"
            )
    images = [x.reshape(-1, 3, 32, 32) for x, _ in batches]
    labels = [y.astype(np.int64) for _, y in batches]
    return Splits(np.concatenate(images[:-1]), np.concatenate(labels[:-1]), images[-1], labels[-1])


def _read_binary(folder: Path, files: tuple[str, ...]) -> list[tuple[Array, Array]]:
    """Records of one label byte and 3,072 pixel bytes."""
    batches = []
    for name in files:
        data = np.frombuffer(read_bytes(folder / name, _MAX_FILE), dtype=np.uint8)
        if len(data) == 0 or len(data) % (1 + PIXELS):
            raise BadFile(
                f"{folder / name}: {len(data):,} bytes, not a whole number of {1 + PIXELS:,}-byte images; "
                "it is truncated or another file: fetch it again"
            )
        records = data.reshape(-1, 1 + PIXELS)
        batches.append((records[:, 1:], records[:, 0]))
    return batches


def _read_python(folder: Path, files: tuple[str, ...]) -> list[tuple[Array, Array]]:
    paths = [folder / name for name in files]
    return [decode_images(read_bytes(path, _MAX_FILE), str(path), "CIFAR-10", "labels", 10) for path in paths]


def _read_mosaics(folder: Path, files: tuple[str, ...]) -> list[tuple[Array, Array]]:
    """Grids of images, and ``labels.npz`` with the labels of all of them."""
    sums = _checksums(folder)

    def decode(name: str) -> Array:
        return decode_mosaic(_checked(folder / name, sums), str(folder / name), side=32, channels=3)

    with ThreadPoolExecutor() as pool:
        images = list(pool.map(decode, files))
    path = folder / "labels.npz"
    _checked(path, sums)
    labels = read_arrays(path, ("y_train", "y_test"))
    for key, array in labels.items():
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise BadFile(f"{path}: wanted {key} as integers (n,), found {array.dtype} {array.shape}")
    ends = np.cumsum([len(part) for part in images[:-1]])
    if len(labels["y_train"]) != ends[-1]:
        raise BadFile(f"{path}: {len(labels['y_train']):,} training labels for {ends[-1]:,} images")
    return list(zip(images, [*np.split(labels["y_train"], ends[:-1]), labels["y_test"]], strict=True))


def _checksums(folder: Path) -> dict[str, str] | None:
    """The sums of ``SHA256SUMS`` by file name; None where there is no such file."""
    path = folder / "SHA256SUMS"
    if not os.path.isfile(path):
        return None
    lines = read_bytes(path, 2**20).decode("utf-8", errors="replace").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    if not all(len(pair) == 2 for pair in pairs):
        raise BadFile(f"{path}: wanted lines of a sum and a file name; remove it or fetch it again")
    return {name.strip().removeprefix("*"): value.lower() for value, name in pairs}


def _checked(path: Path, sums: dict[str, str] | None) -> bytes:
    data = read_bytes(path, _MAX_FILE)
    if sums is not None:
        wanted = sums.get(path.name)
        if wanted is None:
            raise BadFile(f"{path}: SHA256SUMS next to it has no line for it; add the line, or remove SHA256SUMS")
        came = hashlib.sha256(data).hexdigest()
        if came != wanted:
            raise BadFile(f"{path}: SHA-256 {came[:12]}.., SHA256SUMS says {wanted[:12]}..; fetch the file again")
    return data


_NUMBERS = range(1, 6)
_LAYOUTS = (
    _Layout(
        ("", "cifar-10-batches-bin", "cifar10", "cifar10/cifar-10-batches-bin"),
        (*(f"data_batch_{number}.bin" for number in _NUMBERS), "test_batch.bin"),
        _read_binary,
    ),
    _Layout(
        ("", "cifar-10-batches-py", "cifar10", "cifar10/cifar-10-batches-py"),
        (*(f"data_batch_{number}" for number in _NUMBERS), "test_batch"),
        _read_python,
    ),
    _Layout(("", "cifar10"), (*(f"train_{number}.webp" for number in _NUMBERS), "test.webp"), _read_mosaics),
)


def load(data_dir: Path | None) -> Dataset:
    """The data set of the name ``cifar10``.

    Args:
        data_dir: Where its files lie.
    """
    return make_dataset("cifar10", read_cifar10(data_dir), classes=10)
