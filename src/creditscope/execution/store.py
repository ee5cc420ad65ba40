"""A store: a folder that fsspec can name (``file://``, ``s3://``, …), to which workers upload finished files whole."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from creditscope.errors import BadInput, CannotWrite
from creditscope.records import write_atomic

_INSTALL = "pip install 'creditscope[remote]'"


def upload(store: str, files: Iterable[Path]) -> None:
    """Upload files, each whole or not at all.

    Args:
        store: The store's address.
        files: Files of this machine; they keep their names.
    """
    system, root = _open(store)
    try:
        if _is_local(system):
            system.makedirs(root, exist_ok=True)
        elif "/" in root:  # never a bucket: a name that does not exist is a mistake
            with suppress(FileExistsError):
                system.mkdir(root, create_parents=False)
        for path in files:
            target = f"{root}/{path.name}"
            if _is_local(system):
                write_atomic(Path(target), path.read_bytes())
            else:  # an object store shows an object only when it is complete
                system.put_file(str(path), target)
    except Exception as error:  # each kind of store has errors of its own
        raise CannotWrite(f"store {_shown(store)}: {_problem(error)}; check its address and your rights") from None


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
    except Exception as error:
        raise BadInput(f"store {_shown(store)}: {_problem(error)}; check its address and your rights") from None
    return len(wanted)


def _problem(error: Exception) -> str:
    """What an error of a store says, in one line and without a path."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or (str(error).splitlines() or [type(error).__name__])[0][:120]


def _open(store: str) -> tuple[Any, str]:
    try:
        import fsspec.core
    except ImportError:
        raise BadInput(f"store {_shown(store)}: fsspec is not installed; {_INSTALL}") from None
    try:
        system, root = fsspec.core.url_to_fs(store)
    except ImportError as error:
        raise BadInput(f"store {_shown(store)}: {_problem(error)}; for s3:// {_INSTALL}") from None
    except Exception as error:
        raise BadInput(f"store {_shown(store)}: {_problem(error)}; check its address") from None
    return system, str(root).rstrip("/")


def _is_local(system: Any) -> bool:
    protocol = system.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _shown(store: str) -> str:
    """The address without what may be a password."""
    scheme, separator, rest = store.partition("://")
    return f"{scheme}://{rest.rsplit('@', 1)[-1]}" if separator else store
