"""The registry, what a missing extra says, and that a sink never ends a run."""

import logging
import subprocess
import sys

import pytest
from cases.specs import end, epoch, header

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.integrations import SINKS, Sinks, build_sink, log_to
from creditscope.integrations.csv import CsvSink


class Heard:
    """A sink that remembers, and fails at one epoch or on closing."""

    def __init__(self, fails_at=None, fails_on_close=False):
        self.rows, self.closed, self.fails_at, self.fails_on_close = [], 0, fails_at, fails_on_close

    def on_row(self, header, row):
        if row.epoch == self.fails_at:
            raise OSError(28, "No space left on device")
        self.rows.append((header.spec.run_id, row.epoch))

    def close(self):
        self.closed += 1
        if self.fails_on_close:
            raise RuntimeError("")


def test_every_row_goes_to_every_sink_in_order():
    one, two = Heard(), Heard()
    said = []
    with Sinks({"one": one, "two": two}, said.append) as sinks:
        for number in range(3):
            assert sinks(header(), epoch(number)) is None
    assert one.rows == two.rows == [(header().spec.run_id, number) for number in range(3)]
    assert (one.closed, two.closed, said) == (1, 1, [])


def test_a_sink_that_fails_is_said_once_and_gets_no_more_rows():
    broken, well, said = Heard(fails_at=1), Heard(), []
    with Sinks({"broken": broken, "well": well}, said.append) as sinks:
        for number in range(4):
            sinks(header(), epoch(number))
        sinks(header(), end(3))
    assert [number for _, number in broken.rows] == [0]
    assert [number for _, number in well.rows] == [0, 1, 2, 3, 3]
    assert (broken.closed, well.closed) == (0, 1)
    assert said == [
        "sink broken: OSError: [Errno 28] No space left on device; it gets no more rows, the run and its log go on"
    ]


def test_the_cause_beneath_is_named():
    class Deep(Heard):
        def on_row(self, header, row):
            try:
                super().on_row(header, row)
            except OSError as error:
                raise RuntimeError("a long story\nof many lines") from error

    said = []
    Sinks({"deep": Deep(fails_at=0)}, said.append)(header(), epoch(0))
    assert "OSError: [Errno 28] No space left on device;" in said[0]


def test_a_sink_that_cannot_be_closed_is_said_and_the_others_are_closed():
    said, well = [], Heard()
    with Sinks({"broken": Heard(fails_on_close=True), "well": well}, said.append):
        pass
    assert said == ["sink broken: RuntimeError: no message; it gets no more rows, the run and its log go on"]
    assert well.closed == 1


def test_ctrl_c_is_not_swallowed():
    class Interrupted(Heard):
        def on_row(self, header, row):
            raise KeyboardInterrupt

    well = Heard()
    with pytest.raises(KeyboardInterrupt), Sinks({"one": Interrupted(), "two": well}, print) as sinks:
        sinks(header(), epoch(0))
    assert well.closed == 1


def test_a_failure_is_logged_where_nobody_listens(tmp_path, caplog):
    (tmp_path / "csv").write_text("in the way")
    with caplog.at_level(logging.WARNING), cs.log_to("csv", tmp_path) as sink:
        sink(header(), epoch(0))
        sink(header(), epoch(1))
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("sink csv: FileExistsError: ")


def test_names_may_be_listed_or_separated_by_commas(tmp_path):
    assert isinstance(build_sink("csv", tmp_path), CsvSink)
    for names in ("csv", " csv,csv ", ["csv"]):
        with log_to(names, tmp_path) as sinks:
            assert list(sinks._sinks) == ["csv"]
    assert list(log_to([], tmp_path)._sinks) == []


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("tensorbord", "wanted a sink to log to, got 'tensorbord'; did you mean 'tensorboard'?"),
        ("csv,", f"wanted a sink to log to, got ''; known: {', '.join(sorted(SINKS))}"),
    ],
)
def test_an_unknown_sink_is_refused(tmp_path, names, says):
    with pytest.raises(BadInput) as refused:
        log_to(names, tmp_path)
    assert str(refused.value) == says
    assert list(tmp_path.iterdir()) == []


# As on a machine without the extras.
BARE = """
import importlib, sys
from creditscope.errors import BadInput

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name.partition('.')[0]!r}}", name=name)

sys.meta_path.insert(0, Without())
import creditscope.integrations
for module in {modules!r}:
    try:
        importlib.import_module(f"creditscope.integrations.{{module}}")
        sys.stdout.write("imported\\n")
    except BadInput as error:
        sys.stdout.write(f"{{error}}\\n")
"""
PACKAGES = ("tensorboard", "wandb", "mlflow", "pyarrow", "lightning", "pytorch_lightning", "transformers")
NEEDS = {
    "tensorboard": "tensorboard: No module named 'tensorboard'; pip install 'creditscope[tensorboard]'",
    "wandb": "wandb: No module named 'wandb'; pip install 'creditscope[wandb]'",
    "mlflow": "mlflow: No module named 'mlflow'; pip install 'creditscope[mlflow]'",
    "parquet": "parquet: No module named 'pyarrow'; pip install 'creditscope[parquet]'",
    "lightning": "lightning: No module named 'pytorch_lightning'; pip install 'creditscope[lightning]'",
    "transformers": "hf: No module named 'transformers'; pip install 'creditscope[hf]'",
    "csv": "imported",
}


def test_a_missing_extra_gives_the_line_that_installs_it():
    code = BARE.format(packages=PACKAGES, modules=tuple(NEEDS))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(NEEDS.values())
    assert set(SINKS) <= set(NEEDS)


def test_the_room_loads_neither_torch_nor_an_extra():
    code = "import sys, creditscope.integrations; print(*sorted({'torch', 'wandb', 'mlflow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
