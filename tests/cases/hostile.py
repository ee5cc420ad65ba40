"""Every kind of file that others may hand us: how it is read, and whole ones to begin a search from."""

import gzip
import io
import pickle
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from cases import specs
from PIL import Image

from creditscope.data.cifar_pickle import decode_batch
from creditscope.data.idx import read_idx
from creditscope.data.mosaic import decode_mosaic
from creditscope.data.npz import read_npz
from creditscope.engine.checkpoint import encode_checkpoint, read_checkpoint, saved_epoch
from creditscope.errors import CreditscopeError
from creditscope.plans.spec_file import read_spec
from creditscope.records import LogWriter
from creditscope.records.load import load_logs, read_file

TESTS = Path(__file__).parents[1]
CRASHERS = TESTS / "cases" / "crashers"
"""By loader, what the fuzzer once broke it with: read by the ordinary tests ever after."""


@dataclass(frozen=True)
class Loader:
    """One kind of file.

    Args:
        name: What a file of this kind is called.
        read: Reads it, given its path.
        whole: Sound contents.
    """

    name: str
    read: Callable[[Path], object]
    whole: Callable[[], list[bytes]]

    def survives(self, data: bytes, folder: Path) -> None:
        """Read bytes, or refuse them with an error of ours in one line; anything else is a bug."""
        path = folder / self.name
        path.write_bytes(data)
        try:
            self.read(path)
        except CreditscopeError as error:
            if not str(error) or not str(error).isprintable():
                raise AssertionError(f"not one clean line: {str(error)!r}") from error


@cache
def _log() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        writer = LogWriter(Path(folder) / "whole.jsonl")
        writer.create(specs.header())
        for row in (specs.epoch(0), specs.probe(0), specs.epoch(1), specs.end(1)):
            writer.append(row)
        return writer.path.read_bytes()


def _foreign() -> list[bytes]:
    small, evolution = (
        TESTS / "golden" / "published" / name for name in ("dfa_pen_lam0.01_s42.json", "snapshot_evolution_s42.json")
    )
    return [small.read_bytes(), evolution.read_bytes()[:4000], small.read_bytes()[:900] + b"}]}"]


def _batches() -> list[bytes]:
    rows = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    batch = {b"data": rows, b"labels": [3, 7], b"filenames": [b"a", b"b"]}
    return [pickle.dumps(batch, protocol=protocol) for protocol in (2, 4)]


def _npz() -> list[bytes]:
    file = io.BytesIO()
    x, y = np.zeros((4, 5), np.float32), np.array([0, 1, 0, 1])
    np.savez_compressed(file, x_train=x, y_train=y, x_test=x, y_test=y)
    return [file.getvalue()]


def _idx(count: int = 2) -> bytes:
    return struct.pack(">BBBBIII", 0, 0, 8, 3, count, 28, 28) + bytes(count * 784)


def _mosaic() -> list[bytes]:
    files = []
    for kind in ("PNG", "WEBP"):
        file = io.BytesIO()
        Image.new("RGB", (64, 32)).save(file, kind, lossless=True)
        files.append(file.getvalue())
    return files


SPEC = b"""\
preset: demo
methods: [bp, dfa]
seeds: [1, 2]
data: synthetic
set: {epochs: 3, lr: 1e-3}
grid: {penalty: [0, 1e-2]}
runs:
  - methods: [bp@frozen]
    set: {penalty: 0, terminal_ln: no}
"""


def _checkpoint(path: Path) -> None:
    saved_epoch(path, read_checkpoint(path)[1])


def _both_ways(path: Path) -> None:
    """``read_file`` says what is wrong; ``load_logs`` names the file and goes on."""
    for skipped in load_logs([path]).skipped:
        if "could not be read: " in skipped.why:
            raise AssertionError(skipped.why)
    read_file(path)


LOADERS = {
    "log": Loader("x.jsonl", _both_ways, lambda: [_log()]),
    "foreign": Loader("x_lam0.1_s3.json", _both_ways, _foreign),
    "gzip": Loader("x.jsonl.gz", _both_ways, lambda: [gzip.compress(_log()), gzip.compress(b"{}\n") * 2]),
    "spec": Loader("x.yaml", read_spec, lambda: [SPEC]),
    "checkpoint": Loader(
        "x.safetensors",
        _checkpoint,
        lambda: [encode_checkpoint({"param/w": torch.ones(3, 2)}, {"epoch": "3", "spec": "{}"})],
    ),
    "cifar": Loader("data_batch_1", lambda path: decode_batch(path.read_bytes(), path.name), _batches),
    "npz": Loader("x.npz", read_npz, _npz),
    "idx": Loader("train-images-idx3-ubyte", lambda path: read_idx(path, 3), lambda: [_idx(), _idx(1)]),
    "idx-gz": Loader("t10k-images-idx3-ubyte.gz", lambda path: read_idx(path, 3), lambda: [gzip.compress(_idx())]),
    "mosaic": Loader("train_1.webp", lambda path: decode_mosaic(path.read_bytes(), path.name, 32, 3), _mosaic),
}
