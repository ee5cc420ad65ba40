"""The TensorBoard sink, read back by TensorBoard's own accumulator."""

import subprocess
import sys

import numpy as np
import pytest

import creditscope as cs
from creditscope.integrations import config, scalars

pytestmark = pytest.mark.peers


def read(folder, log):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard" / log.spec.run_id), size_guidance={"scalars": 0})
    events.Reload()
    return events


def points(events):
    return {(tag, event.step): event.value for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}


def wanted(log, last=99):
    rows = [row for row in list(log.rows())[1:] if row.epoch <= last]
    return {(name, row.epoch): float(np.float32(value)) for row in rows for name, value in scalars(row).items()}


def test_every_number_is_there_at_its_epoch(tmp_path, logs, feed):
    with cs.log_to("tensorboard", tmp_path) as sink:
        feed(sink, logs)
    assert {path.name for path in (tmp_path / "tensorboard").iterdir()} == {log.spec.run_id for log in logs}
    for log in logs:
        events = read(tmp_path, log)
        assert points(events) == wanted(log)
        assert events.Tensors("end/status/text_summary")[0].tensor_proto.string_val[0] == b"finished"


def test_the_settings_are_hyper_parameters(tmp_path, log, feed):
    from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG, parse_session_start_info_plugin_data

    with cs.log_to("tensorboard", tmp_path) as sink:
        feed(sink, [log])
    metadata = read(tmp_path, log).SummaryMetadata(SESSION_START_INFO_TAG)
    started = parse_session_start_info_plugin_data(metadata.plugin_data.content)
    read_back = {name: getattr(value, value.WhichOneof("kind")) for name, value in started.hparams.items()}
    assert read_back == config(log.header)


def test_a_reader_sees_each_epoch_at_once(tmp_path, log, feed):
    with cs.log_to("tensorboard", tmp_path) as sink:
        feed(sink, [log], last=2)
        assert points(read(tmp_path, log)) == wanted(log, last=2)


@pytest.mark.parametrize("again", [1, 3])
def test_a_resumed_run_has_each_point_once(tmp_path, log, feed, again):
    with cs.log_to("tensorboard", tmp_path) as sink:
        feed(sink, [log], last=2)
    with cs.log_to("tensorboard", tmp_path) as sink:
        feed(sink, [log], first=again)
    events = read(tmp_path, log)
    assert points(events) == wanted(log)
    for tag in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) == len(set(steps)), tag


FULL = """
import resource, signal, sys
from pathlib import Path
import creditscope as cs
from creditscope.records import RunLog

log = RunLog.read(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with cs.log_to("tensorboard", sys.argv[2], print) as sink:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    for row in list(log.rows())[1:] * 3:
        sink(log.header, row)
print("done")
"""


def test_a_full_disk_is_one_line_and_the_run_goes_on(tmp_path, log, logs, feed):
    from creditscope.records import LogWriter

    writer = LogWriter(tmp_path / "run.jsonl")
    writer.create(log.header)
    for row in list(log.rows())[1:]:
        writer.append(row)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(writer.path), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "sink tensorboard: OSError: [Errno 27] File too large; it gets no more rows, the run and its log go on",
        "done",
    ]
