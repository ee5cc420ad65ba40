"""What is put on a spill is read again as it was, wherever it lies."""

import tempfile

import numpy as np
import pytest

from creditscope.protocol.spill import Spill

PIECES = [np.random.default_rng(seed).bytes(size) for seed, size in enumerate((5, 0, 4000, 1, 70_000, 333))]


@pytest.mark.parametrize("in_memory", [0, 5, 4005, 2**20])
def test_bytes_come_back_in_any_order(in_memory):
    spill = Spill(in_memory)
    slots = [spill.put(piece) for piece in PIECES]
    assert [slot.read() for slot in slots] == PIECES
    assert [slot.read() for slot in reversed(slots)] == PIECES[::-1]
    late = spill.put(b"put after others were read")
    assert (late.read(), slots[0].read()) == (b"put after others were read", PIECES[0])


def test_the_first_stay_in_memory_and_the_rest_lie_in_a_file():
    spill = Spill(10)
    assert [spill.put(b"x" * 5).on_disk for _ in range(4)] == [False, False, True, True]


def test_without_a_folder_for_temporary_files_everything_stays_in_memory(monkeypatch):
    def refuse(**options):
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    slots = [spill.put(piece) for spill in [Spill(0)] for piece in PIECES]
    assert not any(slot.on_disk for slot in slots)
    assert [slot.read() for slot in slots] == PIECES


class Full:
    """A file on a disk that takes a few bytes more at each try, and then none."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def seek(self, place):
        return self.file.seek(place)

    def read(self, size):
        return self.file.read(size)

    def close(self):
        self.file.close()

    def write(self, data):
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = min(self.room, 1000, len(data))
        self.room -= taken
        return self.file.write(data[:taken])


def test_a_full_disk_costs_memory_and_nothing_that_was_put_before(monkeypatch):
    whole = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: Full(whole(**options), 6000))
    spill = Spill(0)
    slots = [spill.put(piece) for piece in PIECES]
    assert [slot.on_disk for slot in slots] == [True, True, True, True, False, False]
    assert [slot.read() for slot in slots] == PIECES
