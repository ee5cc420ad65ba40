"""The logs behind the page of cases: small trainings, of which ``docs/cases`` keeps what a judge reads."""

import gzip
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from page_data import DOCS

import creditscope as cs
from creditscope.data import load_data, make_dataset
from creditscope.data.dataset import Dataset, Splits
from creditscope.records.load import load_logs
from creditscope.records.log import LogWriter

FOLDER = DOCS / "cases"
SEEDS = (1, 2, 3)
# Digits that are kept of each redraw of a null.
DIGITS = 5


@dataclass(frozen=True)
class Study:
    """A small training: what its page says of it follows from these fields.

    Args:
        data: Makes the data set.
        says: What the data are, in words.
        methods: Which methods, the claim first.
        epochs: How long.
        width: Of the net.
        depth: Of the net.
        changes: Further settings.
    """

    data: Callable[[], Dataset]
    says: str
    methods: tuple[str, ...]
    epochs: int
    width: int = 16
    depth: int = 3
    changes: dict[str, object] = field(default_factory=dict)

    @property
    def made(self) -> str:
        """How it is trained, in words."""
        others = ", ".join(f"`{key}={value}`" for key, value in self.changes.items())
        return (
            f"Trained: {', '.join(f'`{method}`' for method in self.methods)} on {self.says}; ResMLP, width "
            f"{self.width}, depth {self.depth}, {self.epochs} epochs, seeds {', '.join(map(str, SEEDS))}"
            f"{f', {others}' if others else ''}, else the settings of the demo."
        )

    def train(self, folder: Path) -> list[cs.RunLog]:
        """Train it anew.

        Args:
            folder: Where to put the logs.
        """
        data = self.data()
        settings = {"width": self.width, "depth": self.depth, "epochs": self.epochs, **self.changes}
        settings |= {"probe.n": 256, "probe.epochs": [self.epochs], "probe.redraws": 199}
        return cs.train(
            cs.specs(self.methods, data=data, seeds=SEEDS, changes=settings), folder, data=data, device="cpu"
        )


def noise() -> Dataset:
    """Labels that the inputs know nothing of; about 70 % are of one class."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(0, 1, (n, 64)).astype(np.float32), (rng.random(n) < 0.3).astype(np.int64)

    return make_dataset("noise", Splits(*draw(1024), *draw(2000)), 2)


def parity() -> Dataset:
    """Two signs of products of two inputs each: no linear readout of the inputs can tell them."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(0, 1, (n, 16)).astype(np.float32)
        return x, ((x[:, 0] * x[:, 1] > 0) + 2 * (x[:, 2] * x[:, 3] > 0)).astype(np.int64)

    return make_dataset("xor", Splits(*draw(8192), *draw(2000)), 4)


def clusters() -> Dataset:
    """Ten clusters that lie far apart: training the readout of a random net is enough."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(0, 1, (10, 32))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 10, n)
        return (centres[y] + rng.normal(0, 1, (n, 32))).astype(np.float32), y

    return make_dataset("clusters", Splits(*draw(4096), *draw(2000)), 10)


_BACKPROP = ("bp", "bp@frozen", "bp@readout")
_BLOCKWISE = ("fa-block", "fa-block@frozen", *_BACKPROP)
_XOR = "the parity of two pairs of inputs (four classes), which needs depth"
STUDIES = {
    "noise": Study(
        noise,
        "labels of pure noise, about 70 % of them of one class",
        _BACKPROP,
        10,
        changes={"lr": 0.3},
    ),
    "xor": Study(parity, _XOR, _BLOCKWISE, 10, depth=4, changes={"lr": 3e-3}),
    "synthetic": Study(lambda: load_data("synthetic"), "the bundled `synthetic` data", _BACKPROP, 2),
    "clusters": Study(clusters, "ten clusters that lie far apart", _BACKPROP, 3),
    "two-blocks": Study(parity, _XOR, _BLOCKWISE, 3, width=32, depth=2),
}


@cache
def stored(stem: str) -> tuple[cs.RunLog, ...]:
    """The kept logs of a study.

    Args:
        stem: Which.
    """
    return load_logs(FOLDER / stem).logs


def slim(log: cs.RunLog) -> cs.RunLog:
    """What a judge reads of a log: its last rows, redraws rounded; of a baseline its accuracy alone.

    Args:
        log: The whole log.
    """
    row = log.epochs[-1]
    if log.spec.is_baseline:
        return replace(log, epochs=(row.model_copy(update={"cosine": None, "cosine_published": None}),), probes=())
    probe = log.probes[-1]
    tests = {}
    for name in ("null", "gradient_null"):
        if (test := getattr(probe, name)) is not None and test.draws is not None:
            draws = [[None if v is None else round(v, DIGITS) for v in values] for values in test.draws]
            tests[name] = test.model_copy(update={"draws": draws})
    return replace(log, epochs=(row,), probes=(probe.model_copy(update={**tests, "null_published": None}),))


def store(stem: str, logs: list[cs.RunLog]) -> None:
    """Keep the logs of a study in place of those that are there.

    Args:
        stem: Which.
        logs: Its logs.
    """
    folder = FOLDER / stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for log in map(slim, logs):
        with tempfile.TemporaryDirectory() as made:
            plain = Path(made) / log.name
            writer = LogWriter(plain)
            writer.create(log.header)
            for row in (*log.epochs, *log.probes, log.end):
                if row is not None and row.kind != "header":
                    writer.append(row)
            (folder / f"{log.name}.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))


def train_all() -> None:
    """Train every study and keep its logs."""
    for stem, study in STUDIES.items():
        with tempfile.TemporaryDirectory() as folder:
            store(stem, study.train(Path(folder)))
