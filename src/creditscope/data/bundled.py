"""fashion-mini: the real images that come with the package."""

from pathlib import Path

import numpy as np

from creditscope.data.dataset import Dataset, Splits, make_dataset
from creditscope.data.files import read_bytes
from creditscope.data.mosaic import decode_mosaic
from creditscope.data.npz import read_arrays
from creditscope.errors import BadFile

FOLDER = Path(__file__).with_name("fashion_mini")
HASH_TRAIN = "2bc232324812f58d46fd1f67a44dad5d0c89ed34f1fa7977334db744619c539f"
HASH_TEST = "41e6b0ffe45c4f4d0ce93e30fc866a3f3f2993877aea0afb59227c840d3bf8c6"
_MAX_FILE = 2**23


def read_fashion_mini(folder: Path = FOLDER) -> Dataset:
    """Read fashion-mini: the first 1,000 training and 200 test images of each class of Fashion-MNIST, in their order.

    Args:
        folder: Where its files lie.
    """
    labels = read_arrays(folder / "labels.npz", ("y_train", "y_test"))
    x_train, x_test = (
        decode_mosaic(read_bytes(folder / name, _MAX_FILE), name, side=28, channels=1)
        for name in ("train.png", "test.png")
    )
    splits = Splits(x_train, labels["y_train"].astype(np.int64), x_test, labels["y_test"].astype(np.int64))
    data = make_dataset("fashion-mini", splits, classes=10)
    if (data.spec.hash_train, data.spec.hash_test) != (HASH_TRAIN, HASH_TEST):
        raise BadFile("fashion-mini: the bundled images are damaged (content hash differs); reinstall creditscope")
    return data


def load(data_dir: Path | None) -> Dataset:
    """The data set of the name ``fashion-mini``; it needs no folder."""
    return read_fashion_mini()
