"""Compiling ahead: other processes compile the groups of a fleet while this one trains others.

They leave what they made in the compiler's own cache on disk, where building the compiled fleet finds it. Started as
``python -m creditscope.sweeps.ahead DEVICE``, so that a user's own script is never imported a second time.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch

from creditscope.data.dataset import Dataset, Splits, make_dataset
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.records import RunSpec

# A compiling process keeps several cores busy.
CORES_EACH = 3


class Ahead:
    """The processes that compile for one fleet; they are ended at exit.

    Args:
        groups: The runs of each group, of our own models.
        device: Where the fleet will live.
    """

    def __init__(self, groups: Sequence[Sequence[RunSpec]], device: torch.device) -> None:
        count = min(len(groups), max(1, len(os.sched_getaffinity(0)) // CORES_EACH))
        self._processes = [_start(groups[part::count], device) for part in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def done(self) -> bool:
        """Whether all are; one that failed is done too, and what it should have compiled is compiled here."""
        return all(process.poll() is not None for process in self._processes)


def _start(groups: Sequence[Sequence[RunSpec]], device: torch.device) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile("w+") as orders:
        json.dump([[spec.model_dump(mode="json") for spec in specs] for specs in groups], orders)
        orders.seek(0)
        return subprocess.Popen(
            [sys.executable, "-m", "creditscope.sweeps.ahead", device.type],
            stdin=orders,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def compile_group(specs: Sequence[RunSpec], device: torch.device) -> None:
    """Compile the credit of one group as its fleet will call it; the pictures do not matter, their shape does.

    Args:
        specs: Its runs.
        device: Where its fleet will live.
    """
    for _ in Fleet(specs, _blank(specs[0]), default_model, device, fused=True).rehearse():
        pass


def _blank(spec: RunSpec) -> Dataset:
    assert spec.data is not None
    assert spec.data.shape is not None
    kind = np.uint8 if len(spec.data.shape) == 3 else np.float32
    x = np.zeros((spec.batch or 1, *spec.data.shape), kind)
    x[0] = 1  # pictures that are all alike have no spread to be normalised by
    y = np.zeros(len(x), np.int64)
    return make_dataset("blank", Splits(x, y, x[:1], y[:1]), spec.classes or 2)


def main() -> None:
    """Compile the groups that stand on standard input."""
    for group in json.load(sys.stdin):
        compile_group([RunSpec.model_validate(fields) for fields in group], torch.device(sys.argv[1]))


if __name__ == "__main__":
    main()
