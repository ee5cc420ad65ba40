"""Dataset: one data set as tensors on one device, with the content hash of each split."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from creditscope.errors import BadInput
from creditscope.records import DataSpec

Array = npt.NDArray[Any]

_STATS_CHUNK = 1024


class Splits(NamedTuple):
    """What every reader returns, in canonical form whatever the container was.

    Args:
        x_train: Images as uint8 (n, C, H, W), features as float32 (n, ...), or characters as int64 (n, tokens).
        y_train: Labels as int64 (n,), or the next characters (n, tokens).
        x_test: Like ``x_train``.
        y_test: Like ``y_train``.
    """

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array


@dataclass(frozen=True, eq=False)
class Dataset:
    """Both splits of a data set, ready for batches.

    Args:
        name: The data set's name, or the stem of a user's file.
        x_train: Images as uint8 (n, C, H, W), features as float32 (n, ...), or characters as int64 (n, tokens).
        y_train: Labels as int64 (n,), or the next characters (n, tokens).
        x_test: Like ``x_train``.
        y_test: Like ``y_train``.
        classes: Number of classes, or of characters.
        mean: Mean of the training split, (C, 1, 1) in [0, 1] scale; zeros for features.
        std: Population standard deviation, likewise; ones for features and for a constant channel.
        spec: What the run log records of the data.
    """

    name: str
    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    classes: int
    mean: torch.Tensor
    std: torch.Tensor
    spec: DataSpec

    def to(self, device: torch.device | str) -> "Dataset":
        """The same data set with every tensor on a device.

        Args:
            device: Where the tensors go.
        """
        return replace(
            self,
            x_train=self.x_train.to(device),
            y_train=self.y_train.to(device),
            x_test=self.x_test.to(device),
            y_test=self.y_test.to(device),
            mean=self.mean.to(device),
            std=self.std.to(device),
        )


def make_dataset(name: str, splits: Splits, classes: int) -> Dataset:
    """Build a data set from arrays in canonical form.

    Args:
        name: The data set's name.
        splits: The arrays.
        classes: Number of classes.
    """
    x_train, y_train, x_test, y_test = (np.ascontiguousarray(array) for array in splits)
    mean, std = _statistics(x_train)
    spec = DataSpec(
        name=name,
        hash_train=content_hash(x_train, y_train),
        hash_test=content_hash(x_test, y_test),
        shape=tuple(x_train.shape[1:]),
        n_train=len(x_train),
        n_test=len(x_test),
        class_counts=tuple(np.bincount(y_test.reshape(-1), minlength=classes).tolist()),
        tokens=y_test.shape[1] if y_test.ndim == 2 else None,
        unigram=_unigram(y_train, y_test, classes) if y_test.ndim == 2 else None,
    )
    tensors = [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in (x_train, x_test)]
    labels = [torch.from_numpy(np.array(array, dtype=np.int64)) for array in (y_train, y_test)]
    return Dataset(name, tensors[0], labels[0], tensors[1], labels[1], classes, mean, std, spec)


def hold_out(data: Dataset, samples: int) -> Dataset:
    """The training split without its last samples, which take the place of the test split: to choose settings by.

    Args:
        data: The data set.
        samples: How many are held out.
    """
    n = len(data.x_train)
    if not 0 < samples < n:
        raise BadInput(f"{data.name}: {samples} of {n} training samples cannot be held out; choose 1 to {n - 1}")
    x, y = data.x_train.cpu().numpy(), data.y_train.cpu().numpy()
    splits = Splits(x[:-samples], y[:-samples], x[-samples:], y[-samples:])
    return make_dataset(f"{data.name}-held-out", splits, data.classes)


def content_hash(x: Array, y: Array) -> str:
    """SHA-256 of a split's content: dtype, shape and little-endian bytes of the inputs, then of the labels.

    It does not depend on the container the split was read from, only on what the network sees and in which order.

    Args:
        x: uint8 (n, C, H, W), float32 (n, ...) or int64 (n, tokens).
        y: int64 (n,) or (n, tokens).
    """
    sha = hashlib.sha256()
    for array in (x, y):
        sha.update(f"{array.dtype.name} {','.join(map(str, array.shape))}\n".encode())
        sha.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
    return sha.hexdigest()


def _unigram(y_train: Array, y_test: Array, classes: int) -> float | None:
    """Nats per test token for who predicts every character by its share of the training split."""
    known, asked = (np.bincount(y.reshape(-1), minlength=classes) for y in (y_train, y_test))
    if not known[asked > 0].all():
        return None  # a character that was never seen costs infinitely much
    return float(-(asked[asked > 0] * np.log(known[asked > 0] / known.sum())).sum() / asked.sum())


def _statistics(x: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Per-channel mean and population standard deviation of images in [0, 1] scale, in float64."""
    if x.dtype != np.uint8:
        unit = (1,) * (x.ndim - 1)
        return torch.zeros(unit), torch.ones(unit)
    channels = x.shape[1]
    # Pixel counts are exact; chunks keep the temporaries small (bincount works on int64).
    counts = np.zeros((channels, 256), dtype=np.int64)
    for start in range(0, len(x), _STATS_CHUNK):
        for channel in range(channels):
            counts[channel] += np.bincount(x[start : start + _STATS_CHUNK, channel].reshape(-1), minlength=256)
    share = counts / counts.sum(axis=1, keepdims=True)
    value = np.arange(256) / 255.0
    mean = share @ value
    std = np.sqrt((share * (value - mean[:, None]) ** 2).sum(axis=1))
    std[std == 0.0] = 1.0
    return _channel_tensor(mean), _channel_tensor(std)


def _channel_tensor(values: Array) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).reshape(-1, 1, 1)
