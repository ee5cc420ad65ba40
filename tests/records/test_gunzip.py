"""Compressed logs: read like plain ones, bounded, and honest about a file that breaks off."""

import gzip
import io
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from creditscope.errors import BadFile
from creditscope.records import RunLog
from creditscope.records.gunzip import MAX_UNPACKED_BYTES, Gunzip
from creditscope.records.load import load_logs

GOLDEN = Path(__file__).parents[1] / "golden" / "schema_v1.jsonl"


def unpack(data, limit=MAX_UNPACKED_BYTES, size=io.DEFAULT_BUFFER_SIZE):
    raw = Gunzip("x.gz", io.BytesIO(data), limit)
    return io.BufferedReader(raw, size).read(), raw.torn


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.integers(1, 500), st.integers(0, 9))
def test_one_or_more_members_unpack_as_the_standard_library_unpacks_them(parts, size, level):
    data = b"".join(gzip.compress(part, level) for part in parts)
    assert unpack(data, size=size) == (gzip.decompress(data), False)


def test_a_compressed_log_reads_as_the_plain_one(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(GOLDEN.read_bytes(), mtime=0))
    (log,) = load_logs(tmp_path).logs
    plain = RunLog.read(GOLDEN)
    assert list(log.rows()) == list(plain.rows())
    assert log.problems == plain.problems == ()
    assert log.name == "run.jsonl.gz"


def test_wherever_it_breaks_off_the_whole_lines_before_are_read_and_it_is_said(tmp_path):
    data = gzip.compress(GOLDEN.read_bytes(), mtime=0)
    path = tmp_path / "torn.jsonl.gz"
    read = 0
    for end in range(2, len(data), 97):
        path.write_bytes(data[:end])
        whole = zlib.decompressobj(31).decompress(data[:end]).count(b"\n")
        if whole == 0:
            with pytest.raises(BadFile, match="empty or torn"):
                RunLog.read(path)
            continue
        log = RunLog.read(path)
        assert len(list(log.rows())) == whole
        assert "breaks off" in log.problems[-1]
        read += 1
    assert read > 5


def test_damaged_data_are_refused_by_name(tmp_path):
    data = bytearray(gzip.compress(GOLDEN.read_bytes(), mtime=0))
    data[-6] ^= 1  # in the checksum
    (tmp_path / "bad.jsonl.gz").write_bytes(data)
    (tmp_path / "joined.jsonl.gz").write_bytes(gzip.compress(GOLDEN.read_bytes()) + b"junk")
    (tmp_path / "not.jsonl.gz").write_bytes(b"hello")
    whys = [skipped.why for skipped in load_logs(tmp_path).skipped]
    assert len(whys) == 3
    assert "damaged gzip data" in whys[0]
    assert "damaged gzip data" in whys[1]
    assert "not a log" in whys[2]


def test_a_bomb_is_refused(tmp_path):
    with pytest.raises(BadFile, match="unpacks to more than 1000 bytes"):
        unpack(gzip.compress(bytes(1001)), limit=1000)
    assert unpack(gzip.compress(bytes(1000)), limit=1000) == (bytes(1000), False)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(2**26), 1))  # 64 MB of one line: refused by its length
    (skipped,) = load_logs(path).skipped
    assert "is longer than" in skipped.why


def test_junk_behind_the_magic_never_raises_anything_else(tmp_path):
    rng = random.Random(0)
    for _ in range(300):
        try:
            unpack(b"\x1f\x8b" + rng.randbytes(rng.randrange(200)))
        except BadFile:
            continue
