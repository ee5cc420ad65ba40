"""The synthetic data set: a fixed random teacher network labels Gaussian inputs."""

from pathlib import Path

import numpy as np
import torch

from creditscope.data.dataset import Dataset, Splits, make_dataset
from creditscope.data.order import seeded_generator
from creditscope.errors import BadInput

TEACHER_WIDTH = 64


def synthetic(n_train: int = 4096, n_test: int = 1024, dim: int = 32, classes: int = 10, seed: int = 0) -> Dataset:
    """Teacher-student data: x ~ N(0, I), y = argmax of V·tanh(W·x) with fixed Gaussian W and V.

    The teacher has no biases and an odd activation, so its logits are symmetric about zero and no class is starved.
    Draws and labels are made in float64; only the inputs are then rounded to float32, so that labels do not depend
    on how a machine sums.

    Args:
        n_train: Training samples.
        n_test: Test samples.
        dim: Dimensions of an input.
        classes: Number of classes.
        seed: Seed of the teacher and of the inputs.
    """
    for name, value, least in (
        ("n_train", n_train, 1),
        ("n_test", n_test, 1),
        ("dim", dim, 1),
        ("classes", classes, 2),
    ):
        if value < least:
            raise BadInput(f"synthetic: {name} is {value}; wanted at least {least}")
    hidden = _normal(seed, "teacher", 0, TEACHER_WIDTH, dim) / dim**0.5
    readout = _normal(seed, "teacher", 1, classes, TEACHER_WIDTH) / TEACHER_WIDTH**0.5
    arrays = []
    for index, n in enumerate((n_train, n_test)):
        x = _normal(seed, "inputs", index, n, dim).to(torch.float32)
        y = (torch.tanh(x.double() @ hidden.T) @ readout.T).argmax(dim=1)
        arrays += [x.numpy(), y.numpy().astype(np.int64)]
    return make_dataset("synthetic", Splits(*arrays), classes)


def _normal(seed: int, name: str, index: int, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=seeded_generator(seed, name, index), dtype=torch.float64)


def load(data_dir: Path | None) -> Dataset:
    """The data set of the name ``synthetic``; it needs no folder."""
    return synthetic()
