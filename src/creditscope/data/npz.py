"""A user's own data: an ``.npz`` file with x_train, y_train, x_test and y_test, read without pickle."""

import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from creditscope.data.dataset import Array, Dataset, Splits, make_dataset
from creditscope.data.files import unreadable
from creditscope.errors import BadFile, BadInput
from creditscope.records.table import visible

# Unpacked bytes of all arrays read from one file: 1.4 million colour images of 32 by 32.
MAX_BYTES = 2**32
MAX_CHANNELS = 4
_KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path) -> Dataset:
    """Read and check a user's data set; its name is the stem of the file.

    Args:
        path: The file. Inputs are uint8 images (n, H, W), (n, H, W, C) or (n, C, H, W), or float features (n, ...);
            labels are integers 0..classes-1 of shape (n,).
    """
    arrays = read_arrays(path, _KEYS)
    inputs = {key: _inputs(path.name, key, arrays[key]) for key in ("x_train", "x_test")}
    labels = {key: _labels(path.name, key, arrays[key]) for key in ("y_train", "y_test")}
    for split in ("train", "test"):
        x, y = inputs[f"x_{split}"], labels[f"y_{split}"]
        if len(x) != len(y):
            raise BadInput(f"{path.name}: x_{split} has {len(x)} samples, y_{split} has {len(y)} labels; save as many")
    train, test = inputs["x_train"], inputs["x_test"]
    if train.dtype != test.dtype or train.shape[1:] != test.shape[1:]:
        raise BadInput(
            f"{path.name}: x_train has samples of {train.dtype} {train.shape[1:]}, x_test of {test.dtype} "
            f"{test.shape[1:]}; save both alike"
        )
    classes = _classes(path.name, labels["y_train"], labels["y_test"])
    return make_dataset(path.stem, Splits(train, labels["y_train"], test, labels["y_test"]), classes)


def read_arrays(path: Path, keys: Sequence[str]) -> dict[str, Array]:
    """Read some arrays of an ``.npz`` file: no pickle, and no more memory than its directory admits to.

    Args:
        path: The file.
        keys: The arrays wanted.
    """
    if not os.path.isfile(path):
        raise BadFile(f"{path}: no such file; wanted an .npz with {', '.join(keys)}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {key: _member(path, archive, key) for key in keys}
            total = sum(member.file_size for member in members.values())
            if total > MAX_BYTES:
                raise BadFile(f"{path}: its arrays unpack to {total:,} bytes, the limit is {MAX_BYTES:,}; save a part")
            return {key: _array(path, archive, key, member) for key, member in members.items()}
    except (zipfile.BadZipFile, ValueError, zlib.error, lzma.LZMAError, EOFError, RuntimeError, SyntaxError):
        raise BadFile(f"{path}: not a readable .npz (truncated or damaged); save it again with numpy.savez") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _member(path: Path, archive: zipfile.ZipFile, key: str) -> zipfile.ZipInfo:
    names = archive.namelist()
    if f"{key}.npy" not in names:
        present = ", ".join(visible(name.removesuffix(".npy")[:40], keep="") for name in sorted(names)[:8]) or "nothing"
        raise BadInput(f"{path}: has no {key} (it holds {present}); save it with numpy.savez(file, {key}=...)")
    return archive.getinfo(f"{key}.npy")


def _array(path: Path, archive: zipfile.ZipFile, key: str, member: zipfile.ZipInfo) -> Array:
    """One array. Its header is checked against its size first, because numpy reserves what the header promises."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise BadInput(f"{path}: {key} is in .npy version {version}; save plain arrays of numbers")
        shape, _, dtype = read_header(file)
        start = file.tell()
    if dtype.hasobject or dtype.itemsize == 0:
        raise BadInput(
            f"{path}: {key} holds Python objects; save a plain array of numbers (same shape for every sample)"
        )
    if math.prod(shape) * dtype.itemsize != member.file_size - start or min(shape, default=0) < 0:
        raise ValueError("the header does not fit the size")
    with archive.open(member) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _inputs(name: str, key: str, x: Array) -> Array:
    if x.ndim < 2 or x.size == 0:
        raise BadInput(f"{name}: {key} has shape {x.shape}; wanted (n, ...) with at least one sample and one feature")
    if x.dtype == np.uint8:
        return _images(name, key, x)
    if x.dtype.kind != "f":
        raise BadInput(f"{name}: {key} is {x.dtype}; save images as uint8 (0..255) or features as float32")
    with np.errstate(over="ignore"):
        features = x.astype(np.float32)
    bad = int(features.size - np.isfinite(features).sum())
    if bad:
        raise BadInput(f"{name}: {key} has {bad} values that are NaN, infinite or beyond float32; clean the data")
    return features


def _images(name: str, key: str, x: Array) -> Array:
    """Images as (n, C, H, W), whatever the order of the axes was; a shape that could be either is refused."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4:
        first, last = x.shape[1] <= MAX_CHANNELS, x.shape[3] <= MAX_CHANNELS
        if first and not last:
            return x
        if last and not first:
            return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    raise BadInput(
        f"{name}: {key} is uint8 of shape {x.shape}; wanted images (n, H, W), (n, H, W, C) or (n, C, H, W) with 1 to "
        f"{MAX_CHANNELS} channels and larger sides; save anything else as float32 features"
    )


def _labels(name: str, key: str, y: Array) -> Array:
    if y.dtype.kind not in "iu":
        raise BadInput(f"{name}: {key} is {y.dtype}; wanted integer labels 0..classes-1")
    if y.ndim != 1:
        raise BadInput(f"{name}: {key} has shape {y.shape}; wanted one label a sample, shape (n,)")
    if y.size and (y.min() < 0 or y.max() > np.iinfo(np.int64).max):
        raise BadInput(f"{name}: {key} has labels {y.min()}..{y.max()}; wanted 0..classes-1")
    return y.astype(np.int64)


def _classes(name: str, y_train: Array, y_test: Array) -> int:
    """Number of classes: every one from 0 to the largest training label must have a training sample."""
    seen = np.unique(y_train)
    classes = len(seen)
    if seen[-1] != classes - 1:
        gap = next(label for label, value in enumerate(seen.tolist()) if label != value)
        raise BadInput(
            f"{name}: y_train goes up to {seen[-1]} but never holds {gap}; number the classes 0..{classes - 1}"
        )
    if classes < 2:
        raise BadInput(f"{name}: y_train holds one class only; wanted at least two")
    if y_test.max() >= classes:
        raise BadInput(f"{name}: y_test has label {y_test.max()}, y_train only 0..{classes - 1}; use the same classes")
    return classes
