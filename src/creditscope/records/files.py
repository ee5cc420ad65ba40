"""Files as others may have left them: regular ones only, never through a link when writing, whole or not at all."""

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from creditscope.errors import BadFile, CannotWrite, argument
from creditscope.records.table import visible

_PREFIX, _SUFFIX = ".creditscope-", ".part"
_PART = re.compile(r"\.creditscope-[a-z0-9_]{8}\.part")


def shown(path: Path | str) -> str:
    """A file's name for a message, its control characters and undecodable bytes made visible."""
    name = os.path.basename(path)
    return visible(os.fsencode(name).decode(errors="backslashreplace"), keep="")[:120]


@contextmanager
def open_regular(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """A file for reading; a pipe or a device is refused before it can keep anybody waiting.

    Args:
        path: The file.
        follow: Whether it may be a link.
    """
    try:
        with os.fdopen(_opened(path, os.O_RDONLY, follow), "rb") as file:
            yield file
    except OSError as error:
        said = f"cannot be read ({error.strerror}); check the path and its permissions"
        raise BadFile(f"{shown(path)}: {said}") from None


def open_own(path: Path, *, create: bool = False) -> int:
    """The descriptor of a file of ours that is read and written in place: never through a link, and never emptied.

    Args:
        path: The file.
        create: Whether it is made where it is missing.
    """
    return _opened(path, os.O_RDWR | (os.O_CREAT if create else 0), follow=False)


def _opened(path: Path, flags: int, follow: bool) -> int:
    # Without O_NONBLOCK a pipe waits for its other end.
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    if not follow and os.path.islink(path):
        raise BadFile(f"{shown(path)}: a link, and only the file itself is written; put the file there")
    descriptor = os.open(path, flags, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadFile(f"{shown(path)}: not a regular file; give log files or folders")
    return descriptor


def write_atomic(path: Path, data: bytes, overwrite: bool = True, resume: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Args:
        path: The file.
        data: Its content.
        overwrite: Whether an existing file may be replaced; if not, it is left alone and CannotWrite raised.
        resume: Whether it belongs to a training, which can be gone on with.
    """
    write_together({path: data}, os.replace if overwrite else _name_new, resume)


def write_together(
    files: Mapping[Path, bytes], name: Callable[[str, Path], None] = os.replace, resume: bool = False
) -> None:
    """Write several files that belong together: all their contents are on the disk before the first gets its name.

    Args:
        files: Contents by path.
        name: Gives a finished file its name.
        resume: Whether they belong to a training, which can be gone on with.
    """
    path = next(iter(files))
    try:
        with ExitStack() as stack:
            parts = []
            for path, data in files.items():
                parts.append((stack.enter_context(_part(path, data)), path))
            if len(parts) > 1:  # whoever is killed here leaves one of them missing, never two of different calls
                parts[-1][1].unlink(missing_ok=True)
            for temporary, path in parts:
                name(temporary, path)
    except FileExistsError:
        go_on, out = argument("resume", True), argument("out")
        raise CannotWrite(f"{shown(path)} exists; pass ", go_on, " to go on with it, or choose another ", out) from None
    except OSError as error:
        raise cannot_write(path, error, resume) from None


@contextmanager
def _part(path: Path, data: bytes) -> Iterator[str]:
    """A file without its name yet; whoever writes it holds it, so that nobody takes it for a dead one's."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_PREFIX, suffix=_SUFFIX)
    try:
        with os.fdopen(handle, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove what killed writers left in a folder: parts that nobody holds.

    Args:
        folder: The folder.
    """
    for path in folder.iterdir():
        if not _PART.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        except OSError:  # somebody writes it, or took it away
            continue


def _name_new(temporary: str, path: Path) -> None:
    """Give a finished file its name, unless something has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # No hard links on this file system: look first, then move.
        if os.path.lexists(path):
            raise FileExistsError from None
        os.replace(temporary, path)


def cannot_write(path: Path, error: OSError, resume: bool = False) -> CannotWrite:
    """What to say when a file could not be written.

    Args:
        path: The file.
        error: Why.
        resume: Whether it belongs to a training, which can be gone on with.
    """
    then = (", then pass ", argument("resume", True)) if resume else ()
    said = f"cannot write {shown(path)}: {error.strerror}; free space or choose another "
    return CannotWrite(said, argument("out"), *then, " (what was written before is kept)")
