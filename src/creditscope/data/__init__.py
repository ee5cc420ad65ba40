"""The data sets: device-resident tensors, seeded order, one content hash per split.

``load_data`` knows:

- ``fashion-mini``: 10,000 training and 2,000 test images of Fashion-MNIST, bundled with the package (MIT licence).
- ``fashion-mnist``: the whole of it, from IDX files (plain or ``.gz``) in the data folder or its ``FashionMNIST/raw``.
- ``cifar10``: from the data folder, as binary batches (``cifar-10-batches-bin``), python batches
  (``cifar-10-batches-py``, read without Python's unpickler) or lossless WebP mosaics with ``labels.npz``.
- ``cifar100``: from the data folder, the python version (``cifar-100-python``, or its ``.tar.gz``), likewise.
- ``king-james``: the King James text, bundled with the package (public domain), as windows of characters.
- ``synthetic``: a fixed random teacher labels Gaussian vectors.
- a path that ends in ``.npz``: x_train, y_train, x_test, y_test.
- a path that ends in ``.txt``: a text of your own in UTF-8.

The data folder is the ``data_dir`` argument, else the environment variable ``CREDITSCOPE_DATA``. Nothing is
downloaded and nothing is cached. The hash covers what the network sees (inputs as uint8 (n, C, H, W), float32 features
or characters, labels as int64, in order), not the container: every layout of CIFAR-10 gives the same two hashes.
"""

from pathlib import Path

from creditscope.data.batches import augment, crop_windows, normalise, pad_images
from creditscope.data.dataset import Dataset, make_dataset
from creditscope.data.files import warn_not_published
from creditscope.data.npz import read_npz
from creditscope.data.order import epoch_crops, epoch_order, random_targets, seeded_generator
from creditscope.data.synthetic import synthetic
from creditscope.data.text import read_text
from creditscope.errors import BadInput, did_you_mean
from creditscope.registry import DATASETS

# Content hashes (train, test) of the published data: other files may have the same names, MNIST's have.
PUBLISHED = {
    "fashion-mnist": (
        "82a27aebfb395e5fe7683d66ca18703f89d7e641a9d89c2c63f4602889b41434",
        "6bb7d7ebb80800c924eb27cd795ae1e68b5c09edf3bfec3306a1e58f10ff1208",
    ),
    "cifar10": (
        "330d77d01b4c204111bc234f36e83e0cfe6c69b2dc21b788692db6b7bf32d7e3",
        "13b40c1696cd615dfb1f23e6514f9a2ee71efdd0d1c2aea6828fb77f3c89d460",
    ),
}

__all__ = [
    "DATASETS",
    "PUBLISHED",
    "Dataset",
    "augment",
    "crop_windows",
    "epoch_crops",
    "epoch_order",
    "load_data",
    "make_dataset",
    "normalise",
    "pad_images",
    "random_targets",
    "seeded_generator",
    "synthetic",
]


def load_data(name: str, data_dir: Path | None = None) -> Dataset:
    """Load a data set by name, or a user's ``.npz`` or ``.txt`` by path.

    Args:
        name: One of ``DATASETS``, a path that ends in ``.npz`` or ``.txt``, or ``package.module:Name`` of a function
            that takes the data folder and returns a ``Dataset``.
        data_dir: Folder of data that is not bundled; None: the environment variable ``CREDITSCOPE_DATA``.
    """
    if name.endswith(".npz"):
        return read_npz(Path(name))
    if name.endswith(".txt"):
        return read_text(Path(name))
    if ":" not in name and name not in DATASETS.names():
        raise BadInput(
            f"no data set {name!r}: {did_you_mean(name, DATASETS.names())} (a file of your own must end in .npz or "
            ".txt)"
        )
    data = DATASETS.find(name)(data_dir)
    if not isinstance(data, Dataset):
        raise BadInput(f"data {name!r} gave a {type(data).__name__}, wanted a creditscope.Dataset; see make_dataset")
    return _as_published(data) if data.name in PUBLISHED else data


def _as_published(data: Dataset) -> Dataset:
    """The data set itself, with a warning where its content is not the published one."""
    if (data.spec.hash_train, data.spec.hash_test) != PUBLISHED[data.name]:
        warn_not_published(data.name, data.spec.hash_train or "")
    return data
