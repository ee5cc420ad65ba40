"""Any folder: what verbs make of the worst that a file may hold stays below a stated ceiling of memory."""

import gzip
import json
import os
import subprocess
import sys
import time

import pytest
from cases.specs import spec
from cases.sweeps import environment

from creditscope.errors import BadFile
from creditscope.records import HeaderRow, RunLog
from creditscope.records.load import load_logs
from creditscope.records.log import MAX_LINE_VALUES, MAX_ROWS, MAX_VALUES

CEILING = 512 * 2**20
"""Resident memory above the imports, as docs/threats.md states it."""

VERB = """
import pathlib, re, sys
from creditscope.cli import main
import creditscope.execution.local, creditscope.report.page, creditscope.figures, creditscope.protocol.audit
import matplotlib.pyplot

def resident(which):
    return 1024 * int(re.search(which + r":\\s*(\\d+) kB", pathlib.Path("/proc/self/status").read_text()).group(1))

before = resident("VmRSS")
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
try:
    main()
finally:
    print("PEAK", resident("VmHWM") - before, file=sys.stderr)
"""


def peak(*words, seconds=60):
    """Bytes above the imports that a verb takes, and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", VERB, *map(str, words)], capture_output=True, text=True, timeout=seconds,
        env=environment(),
    )  # fmt: skip
    said, _, number = done.stderr.rpartition("PEAK ")
    assert "Traceback" not in said, said
    return int(number), said + done.stdout


def header(**changes):
    row = HeaderRow(spec=spec("bp")).model_dump(mode="json", exclude_none=True)
    row["spec"] |= changes
    return json.dumps(row).encode() + b"\n"


def write_gz(path, *parts):
    with gzip.open(path, "wb", compresslevel=1) as file:
        for part in parts:
            file.write(part)


def many_probes(count):
    return b'{"kind":"probe","epoch":0}\n' * count


def many_numbers(count):
    return b'{"kind":"epoch","epoch":0,"gain":[' + b"1.5," * count + b"1.5]}\n"


def many_objects(count):
    return b'{"kind":"epoch","epoch":0,"gain":[' + b"{}," * count + b"1]}\n"


def many_rows(rows, numbers):
    inner = b"1.5," * numbers + b"1.5"
    return b"".join(b'{"kind":"epoch","epoch":%d,"gain":[%b]}\n' % (epoch, inner) for epoch in range(rows))


HOSTILE = {
    "probes": lambda path: write_gz(path, header(), many_probes(3 * 10**6)),
    "numbers": lambda path: write_gz(path, header(), many_numbers(60 * 10**6)),
    "short line": lambda path: write_gz(path, header(), many_numbers(7 * 10**6)),
    "objects": lambda path: write_gz(path, header(), many_objects(9 * 10**6)),
    "depth": lambda path: write_gz(path, header(depth=10**9)),
    "rule": lambda path: write_gz(path, header(rule="x" * 5 * 10**6, origin="import")),
    "classes": lambda path: write_gz(path, header(data={"name": "x", "class_counts": [10**400, 1]})),
    "keys": lambda path: write_gz(
        path, header(), b'{"kind":"epoch","epoch":0,"nonfinite":{' + b'"a":"b",' * 4 * 10**6 + b'"b":"c"}}\n'
    ),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    for name, write in HOSTILE.items():
        write(folder / f"{name}.jsonl.gz")
    (folder / "objects.json").write_bytes(b'{"log":[' + b"{}," * 2 * 10**6 + b"{}]}")
    os.mkfifo(folder / "fifo.jsonl")
    return folder


def test_every_hostile_file_is_refused_in_one_line(hostile):
    since = time.monotonic()
    loaded = load_logs(hostile)
    assert loaded.logs == ()
    assert {os.path.basename(skipped.file) for skipped in loaded.skipped} == {path.name for path in hostile.iterdir()}
    assert all("could not be read: " not in skipped.why for skipped in loaded.skipped)
    assert all(len(skipped.why) < 400 for skipped in loaded.skipped)
    assert time.monotonic() - since < 60  # not for its speed: a pipe would wait for ever


@pytest.fixture(scope="module")
def largest(tmp_path_factory):
    """Logs at the very edge of what is read, more than fit together."""
    folder = tmp_path_factory.mktemp("largest")
    for number in range(6):
        rows = many_rows(20, MAX_VALUES // 20 - 10) if number % 2 else many_probes(MAX_ROWS - 10)
        write_gz(folder / f"{number}.jsonl.gz", header(seed=number), rows)
    return folder


VERBS = {
    "ls": ("ls", "FOLDER"),
    "audit": ("audit", "FOLDER"),
    "show": ("show", "FOLDER"),
    "figure": ("figure", "snapshot", "FOLDER", "--out", "OUT.png"),
    "report": ("report", "FOLDER", "--out", "OUT.html"),
}


@pytest.mark.parametrize(
    "verb", ["ls", *(pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS if verb != "ls")]
)
@pytest.mark.parametrize("which", ["hostile", "largest"])
def test_the_ceiling_holds(request, tmp_path, verb, which):
    folder = request.getfixturevalue(which)
    words = [word.replace("FOLDER", str(folder)).replace("OUT", str(tmp_path / "out")) for word in VERBS[verb]]
    took, said = peak(*words)
    assert took < CEILING, f"{took / 2**20:.0f} MiB"
    assert which == "hostile" or "files, from" in said or verb in ("ls", "audit"), "what was left out is named"


def test_a_log_at_the_edge_is_read_and_one_beyond_it_is_not(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(header() + many_numbers(MAX_LINE_VALUES - 10))
    assert len(RunLog.read(path).epochs[0].gain) == MAX_LINE_VALUES - 9
    path.write_bytes(header() + many_numbers(MAX_LINE_VALUES + 1))
    with pytest.raises(BadFile, match="more numbers or lists than any row"):
        RunLog.read(path)
