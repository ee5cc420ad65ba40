"""A place outside memory for what many runs keep until they are judged."""

import io
import tempfile
from dataclasses import dataclass
from typing import IO

# A few dozen runs never touch a disk.
IN_MEMORY = 2**20


@dataclass(frozen=True, slots=True)
class Slot:
    """Where some bytes lie.

    Args:
        spill: The spill that holds them.
        on_disk: Whether in its file.
        start: Their place.
        size: How many they are.
    """

    spill: "Spill"
    on_disk: bool
    start: int
    size: int

    def read(self) -> bytes:
        """The bytes."""
        return self.spill.get(self)


class Spill:
    """Bytes that are stored and read again later: the first in memory, the rest in a nameless temporary file.

    Args:
        in_memory: How many bytes stay in memory.
    """

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._room = in_memory
        self._memory = io.BytesIO()
        self._file: IO[bytes] | None = None
        self._end = 0

    def put(self, data: bytes) -> Slot:
        """Put bytes away.

        Args:
            data: The bytes.
        """
        self._room -= len(data)
        if self._room < 0:
            try:
                return self._to_file(data)
            except OSError:
                pass  # no folder for temporary files, or no room in it: the audit goes on, in memory
        start = self._memory.seek(0, io.SEEK_END)
        self._memory.write(data)
        return Slot(self, False, start, len(data))

    def get(self, slot: Slot) -> bytes:
        """Read bytes again.

        Args:
            slot: What ``put`` gave for them.
        """
        file = self._file if slot.on_disk else self._memory
        assert file is not None
        file.seek(slot.start)
        data = file.read(slot.size)
        if len(data) != slot.size:
            raise OSError(f"wanted {slot.size} bytes of a temporary file, got {len(data)}")
        return data

    def _to_file(self, data: bytes) -> Slot:
        if self._file is None:
            # Unbuffered: after a failed write no remainder waits to be written over what is put next.
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it stays open, see __del__
        start = self._file.seek(self._end)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._end += len(data)
        return Slot(self, True, start, len(data))

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()
