"""What a measured quantity is: its name and symbol, its unit, where and when it is measured, how a row holds it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, final

from creditscope.records.log import RunLog
from creditscope.records.measured import CosineStatus, NullTest, Numbers
from creditscope.records.rows import EpochRow, ProbeRow
from creditscope.records.units import Units

Place = Literal["state", "block", "one"]
When = Literal["epoch", "probe"]
RowT = TypeVar("RowT", bound=EpochRow | ProbeRow)


def held(*path: str) -> Callable[[Any], Any]:
    """Reads the numbers at a path of fields in a row; None where a part of the path is absent.

    Args:
        path: Names of fields, from the row inwards.
    """

    def values(row: Any) -> Any:
        for name in path:
            row = None if row is None else getattr(row, name)
        return row

    return values


def one(*path: str) -> Callable[[Any], Numbers | None]:
    """Reads one number at a path of fields in a row, as a list of one.

    Args:
        path: Names of fields, from the row inwards.
    """
    read = held(*path)
    return lambda row: None if (value := read(row)) is None else [value]


@dataclass(frozen=True)
class Quantity(ABC, Generic[RowT]):
    """Something measured over a run.

    Args:
        name: Its name among the quantities.
        symbol: In formulas and headings; ``_l`` stands for the state or the block.
        unit: In words; empty for a pure number.
        label: For an axis.
        place: Per state, per block, or one number.
        values: The numbers as a row holds them; None where they were not measured.
        field: Its flat name in what sinks and CSV files hold; empty where they leave it out.
        converted: Whether it is the norm of a gradient, which is read in per-sample, sum-reduced units.
        log: Whether its axis is logarithmic at first; None when a logarithm makes no sense.
        angle: Whether it is a cosine, which may be read in degrees.
        null: Its null distribution, from the probe row of the same epoch.
        status: Why each of its values is or is not what it seems; empty where nothing is said.
    """

    name: str
    symbol: str
    unit: str
    label: str
    place: Place
    values: Callable[[RowT], Numbers | None]
    field: str = ""
    converted: bool = False
    log: bool | None = None
    angle: bool = False
    null: Callable[[ProbeRow], NullTest | None] = lambda row: None
    status: Callable[[RowT], Sequence[CosineStatus]] = lambda row: ()

    when: ClassVar[When]

    @abstractmethod
    def rows(self, run: RunLog) -> Sequence[RowT]:
        """The rows of a run that may hold it."""

    @final
    def read(self, row: RowT, units: Units) -> Numbers | None:
        """Its values in one row, in its unit.

        Args:
            row: The row.
            units: Units of the row's log.
        """
        found = self.values(row)
        return units.per_sample(found) if self.converted and found is not None else found

    @final
    def at(self, row: RowT, units: Units, place: int = -1) -> float | None:
        """One of its values; None where it was not measured or is out of reach.

        Args:
            row: The row.
            units: Units of the row's log.
            place: Which state or block; the last one, or the only number, by default.
        """
        found = self.read(row, units) or ()
        return found[place] if -len(found) <= place < len(found) else None

    @final
    def series(self, run: RunLog) -> list[Numbers | None]:
        """Its values in every row of a run, in order.

        Args:
            run: The log.
        """
        return [self.read(row, run.units) for row in self.rows(run)]

    @final
    def last(self, run: RunLog, place: int = -1) -> float | None:
        """One of its values in the last row of a run; None where there is no such row.

        Args:
            run: The log.
            place: Which state or block; the last one, or the only number, by default.
        """
        rows = self.rows(run)
        return self.at(rows[-1], run.units, place) if rows else None

    @final
    def symbol_at(self, place: str | int) -> str:
        """Its symbol at one state or block, e.g. ``‖g_L‖``.

        Args:
            place: Stands for ``l``.
        """
        return self.symbol.replace("_l", f"_{place}")

    @property
    def heading(self) -> str:
        """Symbol and unit."""
        return f"{self.symbol} ({self.unit})" if self.unit else self.symbol


@final
class EpochQuantity(Quantity[EpochRow]):
    """Measured after every epoch."""

    when = "epoch"

    def rows(self, run: RunLog) -> Sequence[EpochRow]:
        """Every epoch."""
        return run.epochs


@final
class ProbeQuantity(Quantity[ProbeRow]):
    """Measured with the expensive probes."""

    when = "probe"

    def rows(self, run: RunLog) -> Sequence[ProbeRow]:
        """Every expensive probe."""
        return run.probes
