"""king-james: the text that comes with the package."""

import lzma
from pathlib import Path

from creditscope.data.dataset import Dataset
from creditscope.data.files import read_bytes
from creditscope.data.text import text_dataset
from creditscope.errors import BadFile

FILE = Path(__file__).with_name("king_james") / "text.txt.xz"
HASH_TRAIN = "bd7dc45c8fe133c0d2e3bd901e6c63626928dec47ef83e6fd6fea8b42b6a1947"
HASH_TEST = "a2570de7da2e326e361454a06892c3fad5db0aad8b15d1718e83730a5015544f"
_MAX_FILE, _MAX_TEXT = 2**21, 2**23
_DAMAGED = "king-james: the bundled text is damaged ({}); reinstall creditscope"


def read_king_james(file: Path = FILE) -> Dataset:
    """Read king-james: the whole King James text, a verse a line.

    Args:
        file: Where it lies.
    """
    try:
        unpacking = lzma.LZMADecompressor()
        text = unpacking.decompress(read_bytes(file, _MAX_FILE), _MAX_TEXT).decode("ascii")
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise BadFile(_DAMAGED.format(error)) from None
    if not unpacking.eof:
        raise BadFile(_DAMAGED.format("cut short, or longer than it should be"))
    data = text_dataset("king-james", text, "king-james")
    if (data.spec.hash_train, data.spec.hash_test) != (HASH_TRAIN, HASH_TEST):
        raise BadFile(_DAMAGED.format("content hash differs"))
    return data


def load(data_dir: Path | None) -> Dataset:
    """The data set of the name ``king-james``; it needs no folder."""
    return read_king_james()
