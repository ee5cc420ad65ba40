"""Load logs from files and folders, ours or the published layouts, recognised by content; never a traceback."""

import gc
import json
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from creditscope.errors import BadFile, CreditscopeError
from creditscope.records.files import open_regular, shown
from creditscope.records.gunzip import MAGIC
from creditscope.records.layouts import import_logs
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, HeaderRow
from creditscope.records.spec import digest

Reduce = Callable[[RunLog], RunLog]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json")
# A published log of 100 epochs is 66 KB. JSON is parsed whole, so this bounds the memory that a junk file can take.
MAX_JSON_BYTES = 8 * 2**20
_HEAD_BYTES = 4096
# What the logs of one call may take before the rest is left out, by name: a folder may hold anything.
MAX_RESIDENT_BYTES = 160 * 2**20
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


@dataclass(frozen=True)
class _Found:
    """A log, perhaps reduced, with what was known of the whole.

    Args:
        name: What to call it when it is left out.
        log: The log.
        identity: Spec and seed; a run without a seed is only the same as its own copy.
        reach: How far it got; larger is further.
        path: Where the whole log stands; None when it came from no file.
    """

    name: str
    log: RunLog
    identity: str
    reach: tuple[bool, int, int]
    path: Path | None


def load_logs(
    paths: str | Path | Iterable[str | Path],
    reduce: Reduce | None = None,
    held: Iterable[RunLog] = (),
) -> Loaded:
    """Read every log in the given files and folders; a bad file is named and the others are read.

    Args:
        paths: One or more files, or folders searched for ``*.jsonl``, ``*.jsonl.gz`` and ``*.json``.
        reduce: Makes each log smaller as soon as it is read, for readers that need only a part of thousands.
        held: Logs that are loaded already; they come first, as they are.
    """
    with without_collection():
        given = [paths] if isinstance(paths, (str, Path)) else paths
        return _load(given, reduce or (lambda log: log), [_found(log.name, log, log, None) for log in held])


def resident_bytes() -> int:
    """The memory that this process has in use now, or where the system does not say, had at most."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


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


def _load(paths: Iterable[str | Path], reduce: Reduce, logs: list[_Found]) -> Loaded:
    skipped: list[Skipped] = []
    seen: set[str] = set()
    before = resident_bytes()
    for given in paths:
        found = list(log_files(Path(given)))
        if not found:
            skipped.append(Skipped(str(given), "no .jsonl or .json file in this folder"))
        for number, path in enumerate(found):
            if resident_bytes() - before > MAX_RESIDENT_BYTES:
                what = f"{len(found) - number} files, from {shown(path)} on, are not read"
                why = f"the logs before them take {MAX_RESIDENT_BYTES // 2**20} MiB of memory; name fewer at once"
                skipped.append(Skipped(str(given), f"{what}: {why}"))
                break
            identity = os.path.realpath(path)
            if identity in seen:
                continue
            seen.add(identity)
            try:
                logs += [_found(str(path), log, reduce(log), path) for log in read_file(path)]
            except CreditscopeError as error:
                skipped.append(Skipped(str(path), _without_name(str(error), path.name)))
            except Exception as error:  # a file nobody foresaw must not stop the others
                skipped.append(Skipped(str(path), f"could not be read: {type(error).__name__}: {str(error)[:200]}"))
    kept, doubles = _drop_doubles(logs)
    return Loaded(kept, (*skipped, *doubles))


def one_line(log: RunLog) -> RunLog:
    """A log reduced to what a list of runs shows: the spec, the last accuracy and how it ended.

    Args:
        log: The whole log.
    """
    last = log.epochs[-1:]
    return RunLog(
        name=log.name,
        header=HeaderRow(spec=log.spec),
        epochs=tuple(EpochRow(epoch=row.epoch, test_accuracy=row.test_accuracy) for row in last),
        end=None if log.end is None else log.end.model_copy(update={"correct": None, "labels": None}),
        problems=log.problems,
    )


def read_file(path: Path) -> tuple[RunLog, ...]:
    """Read one file: a creditscope log, or a published layout, which may hold several runs.

    Args:
        path: The file.
    """
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
        size = os.fstat(file.fileno()).st_size
    if not head.strip():
        raise BadFile(f"{shown(path)}: empty file")
    if path.suffix == ".jsonl" or head.startswith(MAGIC) or _OUR_HEADER.match(head):
        return (RunLog.read(path),)
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise BadFile(f"{shown(path)}: not a log: wanted a JSON object, the file starts with {head[:20]!r}")
    if size > MAX_JSON_BYTES:
        raise BadFile(f"{shown(path)}: {size} bytes of JSON, more than any published log ({MAX_JSON_BYTES})")
    return import_logs(shown(path), _parse(path))


def _parse(path: Path) -> object:
    try:
        with open_regular(path) as file:
            content: object = json.loads(file.read(MAX_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        cause = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise BadFile(f"{shown(path)}: not JSON, or truncated ({cause})") from None
    return content


def log_files(given: Path) -> Iterator[Path]:
    """The file itself, or every log-like file of a folder, sorted; a missing path is yielded and refused on reading.

    Args:
        given: A file or a folder.
    """
    if not given.is_dir():
        yield given
        return
    for folder, folders, names in os.walk(given):
        folders.sort()
        yield from (
            Path(folder) / name for name in sorted(names) if name.endswith(SUFFIXES) and not name.startswith(".")
        )


def _found(name: str, whole: RunLog, kept: RunLog, path: Path | None) -> _Found:
    spec = whole.spec
    identity = f"{spec.cell_key} {spec.seed}"
    if spec.seed is None:
        identity = digest([spec.cell_key, [row.model_dump(mode="json") for row in whole.epochs]])
    reach = (whole.finished, whole.last.epoch if whole.last else -1, len(whole.probes))
    return _Found(name, kept, identity, reach, path)


def _drop_doubles(logs: list[_Found]) -> tuple[tuple[RunLog, ...], tuple[Skipped, ...]]:
    """Keep one log of each run: of two that differ, the one that got further; of two copies, the first."""
    kept: dict[str, _Found] = {}
    skipped: list[Skipped] = []
    for found in logs:
        first = kept.setdefault(found.identity, found)
        if first is found:
            continue
        if _same(first, found):
            note = f"the same run stands in {Path(found.name).name} too; read once"
            kept[found.identity] = replace(first, log=replace(first.log, problems=(*first.log.problems, note)))
        elif found.reach > first.reach:
            kept[found.identity] = found
            skipped.append(Skipped(first.name, f"the same run (spec and seed) as {found.log.name}, which got further"))
        else:
            why = f"the same run (spec and seed) as {first.log.name}, which is judged instead"
            skipped.append(Skipped(found.name, why))
    return tuple(found.log for found in kept.values()), tuple(skipped)


def _same(a: _Found, b: _Found) -> bool:
    """Whether two logs of one run hold the same rows: rare, so the files are read again and nothing is kept for it."""
    if a.reach != b.reach:
        return False
    ours, theirs = _whole(a), _whole(b)
    if ours is None or theirs is None:
        return False
    return (ours.epochs, ours.probes, ours.end) == (theirs.epochs, theirs.probes, theirs.end)


def _whole(found: _Found) -> RunLog | None:
    """The log as its file holds it; None when the file has gone or was overwritten since."""
    if found.path is None:
        return found.log
    try:
        return next((log for log in read_file(found.path) if log.name == found.log.name), None)
    except CreditscopeError:
        return None


def _without_name(message: str, name: str) -> str:
    return message.removeprefix(f"{name}: ")
