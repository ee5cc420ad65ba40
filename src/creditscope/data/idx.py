"""Fashion-MNIST from IDX files, plain or gzip-compressed."""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np

from creditscope.data.dataset import Array, Dataset, Splits, make_dataset
from creditscope.data.files import data_folder, unreadable
from creditscope.errors import BadFile

# A header may promise anything: no split of this data set is larger, so a compressed file cannot fill the memory.
MAX_IMAGES = 200_000
_SIDE = 28
_UNSIGNED_BYTE = 8

_FOLDERS = ("", "FashionMNIST/raw", "fashion-mnist")
_WANTED = (
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte "
    "(plain or .gz, or in FashionMNIST/raw/)"
)


def read_fashion_mnist(data_dir: Path | None) -> Splits:
    """Read the four IDX files of Fashion-MNIST.

    Args:
        data_dir: The folder, or None for the environment variable.
    """
    root = data_folder("fashion-mnist", data_dir, _WANTED)
    folders = [root / part for part in _FOLDERS]
    parts = ("train-images", "train-labels", "t10k-images", "t10k-labels")
    present = [folder for folder in folders if any(_find(folder, part) for part in parts)]
    if not present:
        raise BadFile(f"fashion-mnist: {root} holds no IDX file; put there {_WANTED}")
    splits = []
    for split in ("train", "t10k"):
        images = read_idx(_need(present[0], f"{split}-images"), ndim=3)
        path = _need(present[0], f"{split}-labels")
        labels = read_idx(path, ndim=1)
        if len(images) != len(labels):
            raise BadFile(f"{path}: {len(labels)} labels for {len(images)} images; the files do not belong together")
        if labels.max() > 9:
            raise BadFile(f"{path}: wanted labels 0..9, found {labels.max()}; this is not Fashion-MNIST")
        splits += [images[:, None], labels.astype(np.int64)]
    return Splits(*splits)


def read_idx(path: Path, ndim: int) -> Array:
    """Read one IDX file of unsigned bytes: labels (n,) or images (n, 28, 28).

    Args:
        path: The file; read through gzip when its name ends in ``.gz``.
        ndim: Dimensions wanted.
    """
    try:
        with _open(path) as file:
            header = file.read(4 + 4 * ndim)
            shape = _shape(path, header, ndim)
            count = math.prod(shape)
            body = file.read(count + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise BadFile(f"{path}: the gzip stream is damaged or truncated; fetch the file again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if len(body) != count:
        came = "more" if len(body) > count else f"{len(body):,}"
        raise BadFile(f"{path}: its header promises {count:,} bytes, {came} came; fetch the file again")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _shape(path: Path, header: bytes, ndim: int) -> tuple[int, ...]:
    wanted = bytes([0, 0, _UNSIGNED_BYTE, ndim])
    if len(header) < 4 + 4 * ndim or header[:4] != wanted:
        came = header[:4].hex() or "an empty file"
        raise BadFile(f"{path}: wanted an IDX file that begins with {wanted.hex()}, found {came}; fetch the file again")
    shape = struct.unpack(f">{ndim}I", header[4:])
    if shape[1:] != (_SIDE,) * (ndim - 1) or not 0 < shape[0] <= MAX_IMAGES:
        items = "images of 28 by 28" if ndim == 3 else "labels"
        raise BadFile(f"{path}: wanted 1 to {MAX_IMAGES:,} {items}, its header says {shape}; this is another data set")
    return shape


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _find(folder: Path, part: str) -> Path | None:
    dims = 3 if part.endswith("images") else 1
    names = [f"{part}{dot}idx{dims}-ubyte{tail}" for tail in ("", ".gz") for dot in ("-", ".")]
    return next((folder / name for name in names if os.path.isfile(folder / name)), None)


def _need(folder: Path, part: str) -> Path:
    path = _find(folder, part)
    if path is None:
        dims = 3 if part.endswith("images") else 1
        raise BadFile(f"fashion-mnist: {folder} lacks {part}-idx{dims}-ubyte (plain or .gz); put it next to the others")
    return path


def load(data_dir: Path | None) -> Dataset:
    """The data set of the name ``fashion-mnist``.

    Args:
        data_dir: Where its files lie.
    """
    return make_dataset("fashion-mnist", read_fashion_mnist(data_dir), classes=10)
