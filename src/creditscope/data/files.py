"""Where data files are looked for, and bounded reads that fail with one line."""

import os
import warnings
from pathlib import Path

from creditscope.errors import BadFile, BadInput, argument

ENVIRONMENT = "CREDITSCOPE_DATA"


def data_folder(name: str, data_dir: Path | None, wanted: str) -> Path:
    """The folder a data set is read from: the argument, else the environment variable.

    Args:
        name: The data set, for the message.
        data_dir: The folder the user named, if any.
        wanted: What the folder should hold, for the message.
    """
    origin = "the data folder"
    if data_dir is None:
        value = os.environ.get(ENVIRONMENT, "")
        if not value:
            raise BadInput(
                f"{name} is not bundled: pass ",
                argument("data_dir"),
                f" or set {ENVIRONMENT} to a folder that holds {wanted}; 'fashion-mini' needs no files",
            )
        data_dir, origin = Path(value), ENVIRONMENT
    if not os.path.isdir(data_dir):
        raise BadInput(f"{name}: {origin} {data_dir} is not a folder; name one that holds {wanted}")
    return data_dir


def read_bytes(path: Path, limit: int) -> bytes:
    """A whole file, refused before it is read when it is larger than any file of its kind.

    Args:
        path: The file.
        limit: The most bytes accepted.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(data) > limit:
        raise BadFile(f"{path}: wanted at most {limit:,} bytes, found more; this is not the file its name says")
    return data


def unreadable(path: Path, error: OSError) -> BadFile:
    """The error for a file that the system cannot read.

    Args:
        path: The file.
        error: What the system said.
    """
    return BadFile(f"{path}: cannot be read ({error.strerror or error}); check that it exists and its permissions")


def warn_not_published(name: str, found: str) -> None:
    """Say that files can be read and are others than everybody's.

    Args:
        name: The data set.
        found: Hash of what was read.
    """
    warnings.warn(
        f"these files are readable but are not the published {name} (training hash {found[:12]}..): a subset, another "
        "order or another data set; the log records it",
        stacklevel=4,
    )
