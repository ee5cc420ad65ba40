"""Text as sequences of characters: what a model sees is a window, what it is asked is the next character of each.

The training split is the first nine tenths of the text, the test split the rest: windows that follow each other without
overlap, so no character is a target twice. The characters are those of the training split, in the order of their code
points; a test split with another one is refused.
"""

from pathlib import Path

import numpy as np

from creditscope.data.dataset import Array, Dataset, Splits, make_dataset
from creditscope.data.files import read_bytes
from creditscope.errors import BadFile, BadInput

WINDOW = 64
# Of every ten characters, those for training.
TRAIN_TENTHS = 9
# A text of a user's own; more characters than this are another alphabet than a small head can name.
MAX_FILE, MAX_CHARACTERS = 2**26, 512


def read_text(path: Path) -> Dataset:
    """A user's own text in UTF-8; its name is the stem of the file.

    Args:
        path: The file.
    """
    data = read_bytes(path, MAX_FILE)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadFile(
            f"{path.name}: line {line} holds the byte 0x{data[error.start]:02x}, which is no UTF-8; "
            "save the text as UTF-8"
        ) from None
    return text_dataset(path.stem, text, path.name)


def text_dataset(name: str, text: str, source: str) -> Dataset:
    """Windows of a text, split by position.

    Args:
        name: The data set's name.
        text: The text.
        source: Where it is from, for messages.
    """
    cut = len(text) * TRAIN_TENTHS // 10
    train, test = text[:cut], text[cut:]
    for part, length, which in ((train, cut, "first nine tenths"), (test, len(test), "last tenth")):
        if len(part) <= WINDOW:
            raise BadInput(
                f"{source}: its {which} are {length:,} characters, wanted more than {WINDOW}, one window; "
                "give more text"
            )
    known = sorted(set(train))
    if not 2 <= len(known) <= MAX_CHARACTERS:
        raise BadInput(f"{source}: holds {len(known)} different characters, wanted 2 to {MAX_CHARACTERS}")
    unknown = sorted(set(test) - set(known))
    if unknown:
        line = text.count("\n", 0, cut + test.index(unknown[0])) + 1
        raise BadInput(
            f"{source}: line {line} holds {unknown[0]!r}, which the first nine tenths never do: nothing can learn it; "
            f"take {_them(len(unknown))} out, or put the text in another order"
        )
    x_train, y_train = windows(train, known)
    x_test, y_test = windows(test, known)
    return make_dataset(name, Splits(x_train, y_train, x_test, y_test), classes=len(known))


def windows(text: str, known: list[str]) -> tuple[Array, Array]:
    """The characters of each window by number, and for each the next one; what is left over at the end is dropped.

    Args:
        text: The text, of known characters.
        known: The characters; their places are their numbers.
    """
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    numbers = np.searchsorted(np.array([ord(c) for c in known], dtype=np.uint32), points).astype(np.int64)
    count = (len(numbers) - 1) // WINDOW
    x, y = numbers[: count * WINDOW], numbers[1 : count * WINDOW + 1]
    return x.reshape(count, WINDOW), y.reshape(count, WINDOW)


def _them(count: int) -> str:
    return "it" if count == 1 else f"its {count} such characters"
