"""Build the bundled data set fashion-mini from the published Fashion-MNIST files.

The choice is deterministic: the first 1,000 training and the first 200 test images of each class, kept in their
original order. Images go into one lossless PNG mosaic a split (a grid of 28x28 tiles, row by row), labels into
``labels.npz``. Run it with the folder of the four IDX files and the output folder::

    python tools/make_fashion_mini.py /path/to/fashion-mnist src/creditscope/data/fashion_mini

The same input gives the same content hashes, which ``creditscope.data.bundled`` pins; it prints them.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from creditscope.data.dataset import Array, content_hash
from creditscope.data.idx import read_fashion_mnist

COLUMNS = 50


def choose(y: Array, per_class: int) -> Array:
    """Indices of the first ``per_class`` samples of each class, in the order of the data set.

    Args:
        y: Labels.
        per_class: Samples of each class.
    """
    return np.sort(np.concatenate([np.flatnonzero(y == label)[:per_class] for label in range(10)]))


def tile(x: Array) -> Array:
    """Grey images (n, 1, 28, 28) as one picture, ``COLUMNS`` in a row.

    Args:
        x: The images.
    """
    rows = len(x) // COLUMNS
    grid = x.reshape(rows, COLUMNS, 28, 28).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(grid).reshape(rows * 28, COLUMNS * 28)


def main(source: Path, out: Path) -> None:
    """Write the three files and report the content hash of each split.

    Args:
        source: Folder of the IDX files.
        out: Folder to write to.
    """
    splits = read_fashion_mnist(source)
    labels = {}
    for split, x, y, per_class in (
        ("train", splits.x_train, splits.y_train, 1000),
        ("test", splits.x_test, splits.y_test, 200),
    ):
        index = choose(y, per_class)
        Image.fromarray(tile(x[index])).save(out / f"{split}.png", optimize=True)
        labels[f"y_{split}"] = y[index].astype(np.uint8)
        sys.stdout.write(f"{split} {content_hash(x[index], y[index])}\n")
    np.savez_compressed(out / "labels.npz", **labels)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
