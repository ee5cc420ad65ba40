"""CIFAR-100, its 100 fine labels, from the python version: unpacked, or the archive as it was fetched."""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from pathlib import Path

from creditscope.data.cifar_pickle import decode_images
from creditscope.data.dataset import Array, Dataset, Splits, make_dataset
from creditscope.data.files import data_folder, read_bytes, unreadable, warn_not_published
from creditscope.errors import BadFile

CLASSES = 100
FILES = ("train", "test")
FOLDER = "cifar-100-python"
ARCHIVE = f"{FOLDER}.tar.gz"
# Checksums that the data set's own page and everybody who reads it give.
MD5 = ("16019d7e3df5f24257cddd939b257f8d", "f0ef6b0ae62326f3e7ffdfab6717acfc")
# The published training file has 155 MB, the archive unpacks to 186 MB.
MAX_FILE = 2**28
MAX_UNPACKED = 2**29
_WANTED = f"{FOLDER}/ (with train and test), or {ARCHIVE}"


def read_cifar100(data_dir: Path | None) -> Splits:
    """Read CIFAR-100; where there is a folder and an archive, the folder.

    Args:
        data_dir: The folder, or None for the environment variable.
    """
    root = data_folder("cifar100", data_dir, _WANTED)
    found = _unpacked(root) or _archived(root)
    if found is None:
        raise BadFile(f"cifar100: {root} holds no CIFAR-100 files; put there {_WANTED}")
    if tuple(hashlib.md5(data, usedforsecurity=False).hexdigest() for _, data in found) != MD5:
        warn_not_published("cifar100", hashlib.sha256(found[0][1]).hexdigest())
    splits: list[Array] = []
    for where, data in found:
        x, y = decode_images(data, where, "CIFAR-100", "fine_labels", CLASSES)
        splits += [x, y]
    return Splits(*splits)


def _unpacked(root: Path) -> list[tuple[str, bytes]] | None:
    """The files of the first folder that has one of them; names as messages say them."""
    for folder in (root, root / FOLDER, root / "cifar100", root / "cifar100" / FOLDER):
        present = [name for name in FILES if os.path.isfile(folder / name)]
        if not present:
            continue
        missing = [name for name in FILES if name not in present]
        if missing:
            raise BadFile(f"cifar100: {folder} lacks {missing[0]}; put it next to {present[0]}")
        return [(str(folder / name), read_bytes(folder / name, MAX_FILE)) for name in FILES]
    return None


def _archived(root: Path) -> list[tuple[str, bytes]] | None:
    path = next((folder / ARCHIVE for folder in (root, root / "cifar100") if os.path.isfile(folder / ARCHIVE)), None)
    if path is None:
        return None
    try:
        with gzip.open(path, "rb") as packed:
            plain = packed.read(MAX_UNPACKED + 1)
        if len(plain) > MAX_UNPACKED:
            raise BadFile(f"{path}: unpacks to more than {MAX_UNPACKED:,} bytes; this is not the file its name says")
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            held = {name: _member(archive, f"{FOLDER}/{name}") for name in FILES}
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError):
        raise BadFile(f"{path}: the archive is damaged or truncated; fetch the file again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    for name, data in held.items():
        if data is None:
            raise BadFile(f"{path}: holds no {FOLDER}/{name}; fetch the file again")
    return [(f"{path}/{name}", data) for name, data in held.items() if data is not None]


def _member(archive: tarfile.TarFile, name: str) -> bytes | None:
    """A plain file of an archive; links, devices and sparse files without end are none."""
    try:
        member = archive.getmember(name)
    except KeyError:
        return None
    file = archive.extractfile(member) if member.isreg() and member.size <= MAX_FILE else None
    return None if file is None else file.read()


def load(data_dir: Path | None) -> Dataset:
    """The data set of the name ``cifar100``.

    Args:
        data_dir: Where its files lie.
    """
    return make_dataset("cifar100", read_cifar100(data_dir), classes=CLASSES)
