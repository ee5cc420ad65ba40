"""Read a gzip-compressed log: bounded, and with what a torn file still holds."""

import io
import zlib
from typing import TYPE_CHECKING, BinaryIO

from creditscope.errors import BadFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x1f\x8b"
# A run of 100 epochs is under 1 MB. A file that unpacks to more than this is no log of ours, whatever its size on disk.
MAX_UNPACKED_BYTES = 256 * 2**20
_READ_BYTES = 64 * 2**10
_GZIP = 16 + zlib.MAX_WBITS


class Gunzip(io.RawIOBase):
    """A compressed file as a stream of plain bytes; a stream that breaks off simply ends, and says so in ``torn``.

    Args:
        name: The file's name, for messages.
        file: The compressed file, opened in binary.
        limit: Plain bytes above which it is refused.
    """

    def __init__(self, name: str, file: BinaryIO, limit: int = MAX_UNPACKED_BYTES) -> None:
        self.torn = False
        self._name, self._file, self._limit, self._left = name, file, limit, limit
        self._packed = b""
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False

    def readable(self) -> bool:
        """True: this is what a buffered reader asks."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Unpack at most as much as the buffer holds; 0 at the end."""
        room = memoryview(buffer).cast("B")
        plain = self._unpack(len(room))
        self._left -= len(plain)
        if self._left < 0:
            raise BadFile(f"{self._name}: unpacks to more than {self._limit} bytes: not a creditscope log")
        room[: len(plain)] = plain
        return len(plain)

    def _unpack(self, size: int) -> bytes:
        while True:
            if self._member.eof:  # gzip files may be joined: the next one follows
                self._packed = self._member.unused_data
                self._member, self._begun = zlib.decompressobj(_GZIP), False
            self._packed = self._packed or self._file.read(_READ_BYTES)
            if not self._packed and not self._begun:
                return b""
            self._begun = True
            try:
                plain = self._member.decompress(self._packed, size)
            except zlib.error as error:
                raise BadFile(f"{self._name}: damaged gzip data ({error}); fetch the file again") from None
            at_end = not self._packed
            self._packed = self._member.unconsumed_tail
            if plain:
                return plain
            if at_end and not self._member.eof:
                self.torn = True
                return b""
