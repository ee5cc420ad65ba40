"""A store: a folder that fsspec can name (``file://``, ``s3://``, …), to which workers upload finished files whole."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fsspec

from creditscope.errors import BadInput, CannotWrite
from creditscope.records import write_atomic


def upload(store: str, files: Iterable[Path]) -> None:
    """Upload files, each whole or not at all.

    Args:
        store: The store's address.
        files: Files of this machine; they keep their names.
    """
    system, root = _open(store)
    try:
        system.makedirs(root, exist_ok=True)
        for path in files:
            target = f"{root}/{path.name}"
            if _is_local(system):
                write_atomic(Path(target), path.read_bytes())
            else:  # an object store shows an object only when it is complete
                system.put_file(str(path), target)
    except OSError as error:
        raise CannotWrite(f"store {_shown(store)}: {path_problem(error)}; check its address and your rights") from None


def download(store: str, names: Sequence[str], folder: Path) -> int:
    """Fetch those of the named files that the store has and the folder lacks.

    Args:
        store: The store's address.
        names: File names.
        folder: Where they go.

    Returns:
        How many were fetched.
    """
    system, root = _open(store)
    try:
        listed = system.ls(root, detail=False) if system.exists(root) else []
        there = {str(path).rsplit("/", 1)[-1] for path in listed}
        wanted = [name for name in names if name in there and not (folder / name).exists()]
        for name in wanted:
            write_atomic(folder / name, system.cat_file(f"{root}/{name}"))
    except OSError as error:
        raise BadInput(f"store {_shown(store)}: {path_problem(error)}; check its address and your rights") from None
    return len(wanted)


def path_problem(error: OSError) -> str:
    """What an error of a file system says, in one line and without a path."""
    return error.strerror or (str(error).splitlines() or [type(error).__name__])[0][:120]


def _open(store: str) -> tuple[Any, str]:
    try:
        system, root = fsspec.core.url_to_fs(store)
    except (ImportError, ValueError) as error:
        cause = str(error).splitlines()[0][:160]
        raise BadInput(f"store {_shown(store)}: {cause}; for s3:// pip install s3fs") from None
    return system, str(root).rstrip("/")


def _is_local(system: Any) -> bool:
    protocol = system.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _shown(store: str) -> str:
    """The address without what may be a password."""
    scheme, separator, rest = store.partition("://")
    return f"{scheme}://{rest.rsplit('@', 1)[-1]}" if separator else store
