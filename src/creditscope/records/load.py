"""Load logs from files and folders, ours or the published layouts, recognised by content; never a traceback."""

import gc
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from creditscope.errors import BadFile, CreditscopeError
from creditscope.records.gunzip import MAGIC
from creditscope.records.layouts import import_logs
from creditscope.records.log import RunLog
from creditscope.records.spec import digest

SUFFIXES = (".jsonl", ".jsonl.gz", ".json")
# A published log of 100 epochs is 66 KB. JSON is parsed whole, so this bounds the memory that a junk file can take.
MAX_JSON_BYTES = 32 * 2**20
_HEAD_BYTES = 4096
_OUR_HEADER = re.compile(rb'\s*\{[^{}\[\]]*"kind"\s*:\s*"header"')


@dataclass(frozen=True)
class Skipped:
    """A file that was not read, and why.

    Args:
        file: The path as it was given or found.
        why: In one line.
    """

    file: str
    why: str


@dataclass(frozen=True)
class Loaded:
    """What was found.

    Args:
        logs: The run logs, in the order of the files.
        skipped: The files that hold none, or hold a run a second time.
    """

    logs: tuple[RunLog, ...]
    skipped: tuple[Skipped, ...] = ()


def load_logs(paths: str | Path | Iterable[str | Path], reduce: Callable[[RunLog], RunLog] | None = None) -> Loaded:
    """Read every log in the given files and folders; a bad file is named and the others are read.

    Args:
        paths: One or more files, or folders searched for ``*.jsonl``, ``*.jsonl.gz`` and ``*.json``.
        reduce: Makes each log smaller as soon as it is read, for readers that need only a part of thousands.
    """
    with without_collection():
        given = [paths] if isinstance(paths, (str, Path)) else paths
        return _load(given, reduce or (lambda log: log))


@contextmanager
def without_collection() -> Iterator[None]:
    """Rows hold no cycles, and collecting while a million of them are made doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _load(paths: Iterable[str | Path], reduce: Callable[[RunLog], RunLog]) -> Loaded:
    logs: list[tuple[str, RunLog]] = []
    skipped: list[Skipped] = []
    seen: set[str] = set()
    for given in paths:
        found = list(_files(Path(given)))
        if not found:
            skipped.append(Skipped(str(given), "no .jsonl or .json file in this folder"))
        for path in found:
            identity = os.path.realpath(path)
            if identity in seen:
                continue
            seen.add(identity)
            try:
                logs += [(str(path), reduce(log)) for log in read_file(path)]
            except CreditscopeError as error:
                skipped.append(Skipped(str(path), _without_name(str(error), path.name)))
            except Exception as error:  # a file nobody foresaw must not stop the others
                skipped.append(Skipped(str(path), f"could not be read: {type(error).__name__}: {str(error)[:200]}"))
    kept, doubles = drop_doubles(logs)
    return Loaded(kept, (*skipped, *doubles))


def read_file(path: Path) -> tuple[RunLog, ...]:
    """Read one file: a creditscope log, or a published layout, which may hold several runs.

    Args:
        path: The file.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise BadFile(f"{path.name}: not a regular file; give log files or folders")
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if not head.strip():
            raise BadFile(f"{path.name}: empty file")
        if path.suffix == ".jsonl" or head.startswith(MAGIC) or _OUR_HEADER.match(head):
            return (RunLog.read(path),)
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            raise BadFile(f"{path.name}: not a log: wanted a JSON object, the file starts with {head[:20]!r}")
        if info.st_size > MAX_JSON_BYTES:
            raise BadFile(f"{path.name}: {info.st_size} bytes of JSON, more than any published log ({MAX_JSON_BYTES})")
        return import_logs(path.name, _parse(path))
    except OSError as error:
        raise BadFile(f"{path.name}: cannot be read ({error.strerror}); check the path and its permissions") from None


def _parse(path: Path) -> object:
    try:
        content: object = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        cause = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise BadFile(f"{path.name}: not JSON, or truncated ({cause})") from None
    return content


def _files(given: Path) -> Iterator[Path]:
    """The file itself, or every log-like file of a folder, sorted; a missing path is yielded and refused on reading."""
    if not given.is_dir():
        yield given
        return
    for folder, folders, names in os.walk(given):
        folders.sort()
        yield from (
            Path(folder) / name for name in sorted(names) if name.endswith(SUFFIXES) and not name.startswith(".")
        )


def drop_doubles(logs: list[tuple[str, RunLog]]) -> tuple[tuple[RunLog, ...], tuple[Skipped, ...]]:
    """Keep one log of each run: of two that differ, the one that got further; of two copies, the first.

    Args:
        logs: Logs with the name to give when one is left out.
    """
    kept: dict[str, tuple[str, RunLog]] = {}
    skipped: list[Skipped] = []
    for path, log in logs:
        key = _identity(log)
        if key not in kept:
            kept[key] = (path, log)
            continue
        first_path, first = kept[key]
        if _same(first, log):
            note = f"the same run stands in {Path(path).name} too; read once"
            kept[key] = (first_path, replace(first, problems=(*first.problems, note)))
        elif _reach(log) > _reach(first):
            kept[key] = (path, log)
            skipped.append(Skipped(first_path, f"the same run (spec and seed) as {log.name}, which got further"))
        else:
            skipped.append(Skipped(path, f"the same run (spec and seed) as {first.name}, which is judged instead"))
    return tuple(log for _, log in kept.values()), tuple(skipped)


def _identity(log: RunLog) -> str:
    """Spec and seed; a run without a seed is only the same as its own copy."""
    if log.spec.seed is not None:
        return f"{log.spec.cell_key} {log.spec.seed}"
    return digest([log.spec.cell_key, [row.model_dump(mode="json") for row in log.epochs]])


def _same(a: RunLog, b: RunLog) -> bool:
    return (a.epochs, a.probes, a.end) == (b.epochs, b.probes, b.end)


def _reach(log: RunLog) -> tuple[bool, int, int]:
    return log.finished, log.last.epoch if log.last else -1, len(log.probes)


def _without_name(message: str, name: str) -> str:
    return message.removeprefix(f"{name}: ")
