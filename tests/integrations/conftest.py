"""What the tests of sinks share: small real logs, and rows that come as if a run were resumed."""

import pytest
from cases.vision_ops import declare

import creditscope as cs
from creditscope.records import EndRow

declare()

CHANGES = {
    "epochs": 4,
    "width": 8,
    "depth": 2,
    "batch": 1000,
    "probe.n": 32,
    "probe.batch": 16,
    "probe.epochs": ["0", "3"],
    "probe.redraws": 9,
    "probe.directions": 2,
}


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """Two runs of four epochs, with expensive probes at epochs 0, 3 and 4."""
    specs = cs.specs(["dfa-rms", "bp@frozen"], data="synthetic", seeds=[1], changes=CHANGES)
    return cs.train(specs, tmp_path_factory.mktemp("runs"), device="cpu")


@pytest.fixture(scope="session")
def log(logs):
    return logs[0]


@pytest.fixture(scope="session")
def feed():
    """Hand rows of logs to a sink, interleaved by epoch as a fleet does."""

    def feed(sink, logs, first=0, last=99, end=True):
        rows = [(row.epoch, log.header, row) for log in logs for row in list(log.rows())[1:]]
        for epoch, header, row in sorted(rows, key=lambda part: part[0]):
            if first <= epoch <= last and (end or not isinstance(row, EndRow)):
                sink(header, row)

    return feed
