"""What a sink writes: the numbers of a row under flat, stable names, and the run's settings.

A name is the quantity's field, then ``state_L`` (states h_0..h_L) or ``block_L`` (blocks 0..L−1).
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from creditscope.quantities import QUANTITIES
from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow
from creditscope.records.units import Units

Row = EpochRow | ProbeRow | EndRow
OURS = Units()


def scalars(row: Row, units: Units = OURS) -> dict[str, float]:
    """The numbers of a row that are worth a curve; what was not measured or is not finite is left out.

    Args:
        row: A row of a log.
        units: Units of that log.
    """
    return {name: float(value) for name, value in _named(row, units) if value is not None and math.isfinite(value)}


def config(header: HeaderRow) -> dict[str, str | int | float | bool]:
    """What a run is, as flat hyper-parameters: the spec's fields with dots, its method, and the versions behind it.

    Args:
        header: The run's header.
    """
    spec = header.spec
    known = {"run": spec.run_id, "method": spec.method, "parameters": header.parameters}
    return dict(_flat(known | spec.model_dump(mode="json") | {"provenance": header.provenance}))


def _named(row: Row, units: Units) -> Iterator[tuple[str, float | None]]:
    if isinstance(row, EndRow):
        yield "end/test_accuracy", row.test_accuracy
        yield "end/finished", float(row.status == "finished")
        return
    for quantity in QUANTITIES.values():
        if quantity.field and quantity.when == row.kind:
            for place, value in enumerate(quantity.read(row, units) or ()):
                where = "" if quantity.place == "one" else f"/{quantity.place}_{place}"
                yield quantity.field + where, value


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, str | int | float | bool]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, (list, tuple)):
            yield before + name, json.dumps(value)
        elif value is not None:
            yield before + name, value
