"""Long lives in one process: memory, open files and children stay as they are."""

import os
from pathlib import Path

import pytest
from cases.fleets import features, spec
from cases.specs import end, epoch, header

import creditscope as cs
from creditscope.protocol.audit import audit
from creditscope.records import LogWriter
from creditscope.records.load import resident_bytes

GROWTH = 12 * 2**20
"""What the second half may take: allocators round, and a leak of a row an epoch or a log an audit is more."""


def state():
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return resident_bytes(), len(os.listdir("/proc/self/fd")), len(children)


def assert_flat(middle, last):
    assert last[0] - middle[0] < GROWTH
    assert last[1:] == middle[1:]


@pytest.mark.parametrize("epochs", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_the_epochs_of_a_run_leave_nothing_behind(tmp_path, epochs):
    seen = {}

    def on_row(head, row):
        if row.kind == "epoch":
            seen[row.epoch] = state()

    runs = [spec(method, epochs=epochs) for method in ("bp", "kp", "dfa-rms")]
    cs.train(runs, tmp_path, data=features(), device="cpu", on_row=on_row)
    assert_flat(seen[epochs // 2], seen[epochs])


@pytest.mark.parametrize("audits", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_audits_leave_nothing_behind(tmp_path, audits):
    for seed in (1, 2, 3):
        writer = LogWriter(tmp_path / f"{seed}.jsonl")
        writer.create(header("dfa", seed=seed))
        for row in (epoch(0), epoch(1), end(1)):
            writer.append(row)
    seen = {}
    for number in range(1, audits + 1):
        audit([tmp_path], keep_rows=False).to_text()
        seen[number] = state()
    assert_flat(seen[audits // 2], seen[audits])
