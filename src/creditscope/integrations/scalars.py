"""What a sink writes: the numbers of a row under flat, stable names, and the run's settings.

A name is the log's field, then ``state_L`` (states h_0..h_L), ``block_L`` (blocks 0..L−1) or a part of the field.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow

Row = EpochRow | ProbeRow | EndRow
Named = Iterator[tuple[str, float | None]]

# By kind of row: a name, and where in the row its value stands.
_SINGLE = {
    "epoch": {
        **{name: name for name in ("train_loss", "test_loss", "test_accuracy", "balanced_accuracy", "lr", "error")},
        **{f"gamma/{part}": f"gamma.{part}" for part in ("acting", "deep", "worst", "published", "clamped")},
    },
    "probe": {"drift": "drift.at_128"},
    "end": {"end/test_accuracy": "test_accuracy"},
}
# Likewise for lists over states or blocks: the place in the list ends the name.
_LISTS: dict[str, dict[str, str]] = {
    "epoch": {
        "hidden/state": "hidden.median",
        "reference/state": "reference.median",
        "gain/state": "gain",
        "growth/block": "growth",
        "branch/block": "branch",
        "cosine/state": "cosine.mean",
        "cosine_published/state": "cosine_published.mean",
    },
    "probe": {
        "fidelity/state": "fidelity.median",
        "null_p/state": "null.p",
        "rho/state": "rho.credit",
        "nudge_efficiency/state": "nudge.efficiency",
        "gradient_cosine/block": "gradient_cosine",
        "step_descent/block": "step_descent",
        "probe_accuracy/state": "probe_accuracy",
        "participation/state": "participation",
    },
    "end": {},
}


def scalars(row: Row) -> dict[str, float]:
    """The numbers of a row that are worth a curve; what was not measured or is not finite is left out.

    Args:
        row: A row of a log.
    """
    return {name: float(value) for name, value in _named(row) if value is not None and math.isfinite(value)}


def config(header: HeaderRow) -> dict[str, str | int | float | bool]:
    """What a run is, as flat hyper-parameters: the spec's fields with dots, its method, and the versions behind it.

    Args:
        header: The run's header.
    """
    spec = header.spec
    known = {"run": spec.run_id, "method": spec.method, "parameters": header.parameters}
    return dict(_flat(known | spec.model_dump(mode="json") | {"provenance": header.provenance}))


def _named(row: Row) -> Named:
    for name, path in _SINGLE[row.kind].items():
        yield name, _at(row, path)
    for name, path in _LISTS[row.kind].items():
        yield from _listed(name, _at(row, path))
    if isinstance(row, EpochRow):
        yield "growth/max", _largest(row.growth or ())
        if row.movement is not None:
            # A block stands still only when all of its matrices do.
            weights, blocks = row.movement.weights, row.movement.blocks
            yield from _listed("movement/block", [_largest([weights.get(name) for name in names]) for names in blocks])
    elif isinstance(row, EndRow):
        yield "end/finished", float(row.status == "finished")


def _at(row: Row, path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = None if value is None else getattr(value, part)
    return value


def _listed(name: str, values: Sequence[float | None] | None) -> Named:
    yield from ((f"{name}_{place}", value) for place, value in enumerate(values or ()))


def _largest(values: Sequence[float | None]) -> float | None:
    """Of what was measured; None as soon as one is not finite."""
    known = [value for value in values if value is not None]
    return max(known) if known and all(map(math.isfinite, known)) else None


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, str | int | float | bool]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, (list, tuple)):
            yield before + name, json.dumps(value)
        elif value is not None:
            yield before + name, value
