"""RunLog: one JSONL file a run, written row by row, read whole and never half."""

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import TypeAdapter, ValidationError

from creditscope.errors import BadFile
from creditscope.records.files import cannot_write, open_own, open_regular, write_atomic
from creditscope.records.gunzip import MAGIC, Gunzip
from creditscope.records.rows import SCHEMA_VERSION, EndRow, EpochRow, HeaderRow, ProbeRow, Row, strip_nonfinite
from creditscope.records.spec import RunSpec
from creditscope.records.table import Table, visible
from creditscope.records.units import PER_SAMPLE, Units

# A run of 1,000 epochs is far below each of these. Together they bound what any file can make of memory.
MAX_LINE_BYTES = 32 * 2**20
MAX_LINE_VALUES, MAX_VALUES = 10**6, 2 * 10**6
MAX_LINE_LISTS, MAX_KEYS = 10**5, 10**6
MAX_ROWS = 2 * 10**5
MAX_NAME = 10_000
_ROW: TypeAdapter[Any] = TypeAdapter(Row)


RowT = TypeVar("RowT", bound=EpochRow | ProbeRow)


@dataclass(frozen=True)
class RunLog:
    """One run's record.

    Args:
        name: File name, or another name that says where it came from; never a full path.
        header: What the run is.
        epochs: One row per logged epoch, in order.
        probes: Expensive probes, in order.
        end: How it ended; None while it runs or after a kill.
        problems: What was found wrong but survivable, such as a torn last line.
    """

    name: str
    header: HeaderRow
    epochs: tuple[EpochRow, ...] = ()
    probes: tuple[ProbeRow, ...] = ()
    end: EndRow | None = None
    problems: tuple[str, ...] = ()

    @property
    def spec(self) -> RunSpec:
        """The run's spec."""
        return self.header.spec

    @cached_property
    def units(self) -> Units:
        """The units of its gradient norms."""
        return self.header.units

    @property
    def finished(self) -> bool:
        """Whether the run ended as planned."""
        return self.end is not None and self.end.status == "finished"

    @property
    def last(self) -> EpochRow | None:
        """The last logged epoch: the one that is judged."""
        return self.epochs[-1] if self.epochs else None

    def rows(self) -> Iterator[HeaderRow | EpochRow | ProbeRow | EndRow]:
        """All rows in the order of a file."""
        yield self.header
        body: list[EpochRow | ProbeRow] = [*self.epochs, *self.probes]
        yield from sorted(body, key=lambda row: (row.epoch, row.kind))
        if self.end is not None:
            yield self.end

    def _repr_html_(self) -> str:
        rows = [
            (
                str(row.epoch),
                "" if row.test_accuracy is None else f"{row.test_accuracy:.4f}",
                _numbers(row.hidden.median if row.hidden else ()),
                _numbers(self.units.per_sample(row.reference.median) if row.reference else ()),
            )
            for row in self.epochs
        ]
        status = self.end.status if self.end is not None else "unfinished"
        title = (
            f"{self.spec.method}, seed {self.spec.seed}: {status}, {len(self.probes)} expensive probes ({self.name})"
        )
        columns = ("epoch", "accuracy", "‖h_l‖", f"‖g_l‖ ({PER_SAMPLE})")
        return Table(columns, tuple(rows), title=title).to_html()

    @classmethod
    def read(cls, path: Path, follow: bool = True) -> "RunLog":
        """Read a JSONL log, plain or gzip-compressed; a torn last line is dropped and reported in ``problems``.

        Args:
            path: The file.
            follow: Whether it may be a link.
        """
        with open_regular(path, follow=follow) as file:
            packed = file.read(len(MAGIC)) == MAGIC
            file.seek(0)
            return cls._from_gzip(path.name, file) if packed else cls._from_file(path.name, file)

    @classmethod
    def _from_gzip(cls, name: str, file: BinaryIO) -> "RunLog":
        plain = Gunzip(name, file)
        log = cls._from_file(name, io.BufferedReader(plain))
        if not plain.torn:
            return log
        return replace(log, problems=(*log.problems, "the gzip file breaks off: rows after this point are lost"))

    @classmethod
    def _from_file(cls, name: str, file: BinaryIO) -> "RunLog":
        header: HeaderRow | None = None
        epochs: list[EpochRow] = []
        probes: list[ProbeRow] = []
        end: EndRow | None = None
        problems: list[str] = []
        for number, line in _numbered(name, file):
            if not line.endswith(b"\n"):
                problems.append(f"line {number} is torn (the writer was killed) and was dropped")
                break
            row = _parse(name, number, line)
            if isinstance(row, HeaderRow) != (number == 1):
                raise BadFile(f"{name}: line {number}: wanted one header row, on line 1; is this a creditscope log?")
            if end is not None and not isinstance(row, ProbeRow):
                raise BadFile(f"{name}: line {number}: a row of kind {row.kind!r} follows the end row")
            if isinstance(row, HeaderRow):
                header = row
            elif isinstance(row, EpochRow):
                if epochs and row.epoch <= epochs[-1].epoch:
                    raise BadFile(f"{name}: line {number}: epoch {row.epoch} follows epoch {epochs[-1].epoch}")
                epochs.append(row)
            elif isinstance(row, ProbeRow):
                probes.append(row)
            else:
                end = row
        if header is None:
            raise BadFile(f"{name}: wanted a header row on line 1, found none: the file is empty or torn")
        return cls(name, header, tuple(epochs), tuple(probes), end, tuple(problems))


def _numbers(values: Sequence[float | None]) -> str:
    return " ".join("–" if value is None else f"{value:.3g}" for value in values)


def latest(rows: Iterable[RowT]) -> RowT | None:
    """The row of the last epoch; of several at that epoch, the one that was written last.

    Args:
        rows: In the order of the file.
    """
    ordered = sorted(rows, key=lambda row: row.epoch)
    return ordered[-1] if ordered else None


def wall_seconds(logs: Iterable[RunLog]) -> float | None:
    """From the start of the first run to the end of the last; None where a log does not say.

    Args:
        logs: At least one.
    """
    begun, ended = [], []
    for log in logs:
        if log.header.time_created is None or log.end is None or log.end.time_total is None:
            return None
        begun.append(datetime.fromisoformat(log.header.time_created))
        ended.append(begun[-1] + timedelta(seconds=log.end.time_total))
    return (max(ended) - min(begun)).total_seconds()


def _numbered(name: str, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, refusing one that no log of ours could hold before it fills the memory."""
    number = values = keys = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadFile(f"{name}: line {number} is longer than {MAX_LINE_BYTES} bytes: not a creditscope log")
        here = line.count(b",")
        values, keys = values + here, keys + line.count(b":")
        if here > MAX_LINE_VALUES or line.count(b"[") + line.count(b"{") > MAX_LINE_LISTS:
            raise BadFile(f"{name}: line {number} holds more numbers or lists than any row of a creditscope log")
        if values > MAX_VALUES or keys > MAX_KEYS or number > MAX_ROWS:
            most = f"{MAX_VALUES} numbers, {MAX_KEYS} names, {MAX_ROWS} rows"
            raise BadFile(f"{name}: holds more than a creditscope log ({most})")
        yield number, line


def _parse(name: str, number: int, line: bytes) -> HeaderRow | EpochRow | ProbeRow | EndRow:
    # One pass for sound rows is 2.5 times as fast; the slow way below explains what is wrong with others.
    # NaN and Infinity are searched by their capitals, which no row but the header is likely to hold.
    if number > 1 and not (b"N" in line or b"I" in line):
        with suppress(ValidationError):
            parsed: HeaderRow | EpochRow | ProbeRow | EndRow = _ROW.validate_json(line)
            return parsed
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{name}: line {number} is not JSON ({_first_line(error)})") from None
    if isinstance(data, dict) and number == 1 and (long := _long_text(data)):
        raise BadFile(f"{name}: line 1: {long} holds a text of more than {MAX_NAME} characters: not a creditscope log")
    version = data.get("schema_version", SCHEMA_VERSION) if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BadFile(f"{name}: log version {version}, this creditscope reads up to {SCHEMA_VERSION}; upgrade it")
    try:
        row: HeaderRow | EpochRow | ProbeRow | EndRow = _ROW.validate_python(data)
    except ValidationError as error:
        raise BadFile(f"{name}: line {number}: {explain(error)}") from None
    return row


def _long_text(data: dict[str, Any]) -> str | None:
    """Which field of a header, if any, holds a text that no name, formula or reason would be."""
    for key, value in data.items():
        inner = [value]
        while inner:
            each = inner.pop()
            if isinstance(each, str) and len(each) > MAX_NAME:
                return visible(key[:80], keep="")
            inner += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return next(("a name" for key in data if len(key) > MAX_NAME), None)


def explain(error: ValidationError) -> str:
    """The first problem of a pydantic error, in one line: where, and what was wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    # A key that should not be there is named, and it may hold anything.
    where = visible(".".join(str(part) for part in first["loc"])[:200], keep="")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"


def _refuse_constant(text: str) -> float:
    raise ValueError(f"the constant {text} is not JSON; a non-finite value is written as null")


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class LogWriter:
    """Writes one run's log: created whole or not at all, then appended row by row.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, header: HeaderRow) -> None:
        """Begin the log. An existing file is never touched.

        Args:
            header: The first row.
        """
        write_atomic(self.path, _encode(header), overwrite=False, resume=True)

    def append(self, row: EpochRow | ProbeRow | EndRow) -> None:
        """Add one row; a non-finite value becomes null and is named in the row's ``nonfinite``.

        Args:
            row: The row.
        """
        data = _encode(row)
        try:
            # Unbuffered: after a failed write no remainder waits to be flushed behind the truncation.
            with os.fdopen(open_own(self.path), "r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                try:
                    rest = memoryview(data)
                    while rest:
                        rest = rest[file.write(rest) :]
                except BaseException:
                    file.truncate(size)
                    raise
        except OSError as error:
            raise cannot_write(self.path, error, resume=True) from None

    def truncate_after(self, epoch: int) -> tuple[EpochRow, ...]:
        """Drop every row past an epoch, and the end row: what a resume from a checkpoint of that epoch needs.

        Args:
            epoch: The last epoch to keep.

        Returns:
            The epoch rows that are left.
        """
        log = RunLog.read(self.path, follow=False)
        keep = [row for row in log.rows() if not isinstance(row, EndRow) and getattr(row, "epoch", -1) <= epoch]
        write_atomic(self.path, b"".join(_encode(row) for row in keep), resume=True)
        return tuple(row for row in keep if isinstance(row, EpochRow))


def _encode(row: HeaderRow | EpochRow | ProbeRow | EndRow) -> bytes:
    data, nonfinite = strip_nonfinite(row.model_dump(mode="python", exclude_none=False))
    if nonfinite and "nonfinite" in data:
        data["nonfinite"] |= nonfinite
    return json.dumps(_drop_none(data), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _drop_none(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}
