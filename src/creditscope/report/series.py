"""The numbers behind the plots, as one JSON value: every run's quantities over its epochs, rounded and compact."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from creditscope.protocol.audit import JudgedCell
from creditscope.protocol.cells import Baseline
from creditscope.protocol.evidence import Ruling
from creditscope.protocol.facts import RunFacts
from creditscope.protocol.text import number
from creditscope.quantities import QUANTITIES, Quantity
from creditscope.quantities.per_epoch import ACCURACY
from creditscope.quantities.quantity import EpochQuantity
from creditscope.records.log import RunLog
from creditscope.records.measured import Numbers
from creditscope.records.table import visible
from creditscope.report.labels import Named, Names
from creditscope.report.plots import HEATMAPS, Plot, plots

DIGITS = 5
MARGIN = "margin"
# 98 % of a normal null lie within this many standard deviations; the p values in the tables come from the redraws.
NULL_SDS = 2.326


def page_data(names: Names) -> dict[str, Any]:
    """Everything the page's script draws.

    Args:
        names: The cells, and how they are called.
    """
    page_plots = plots(names.checks, names.audit.protocol.required)
    shown = _shown(page_plots)
    runs = [
        _run(index, named, run, facts, shown)
        for index, named in enumerate(names.cells)
        for run, facts in named.judged.cell.members
    ]
    present = {name for run in runs for name in run["values"]}
    return {
        "digits": DIGITS,
        "groups": list(names.groups),
        "cells": [_cell(named) for named in names.cells],
        "runs": runs,
        "quantities": {
            name: {
                "label": quantity.label,
                "place": quantity.place,
                "when": quantity.when,
                "log": quantity.log,
                "angle": quantity.angle,
                "symbol": quantity.symbol,
            }
            for name, quantity in shown.items()
            if name in present
        },
        "heatmaps": [name for name in HEATMAPS if name in present],
        "plots": [
            {
                "id": plot.id,
                "quantities": [name for name in plot.quantities if name in present],
                "view": plot.view,
                "marks": list(plot.marks),
                "baselines": plot.baselines,
                "lines": _lines(plot.quantities, names),
            }
            for plot in page_plots
        ],
    }


def embed(value: Any) -> str:
    """JSON that may stand inside a ``<script>`` element: no character in it can end the element.

    Args:
        value: Anything JSON can carry.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def short(value: float | None) -> float | int | None:
    """A number with as many significant digits as plots show; None for what is not finite.

    Args:
        value: Any number.
    """
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    if math.isinf(rounded):  # the largest numbers round to what is none
        return value
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 else rounded


# A comparison of two runs: ``_margins`` computes it, no row holds it.
_MARGIN = EpochQuantity(
    MARGIN, "margin", "pp", "accuracy − that of the deciding opponent (pp)", "one", lambda row: None
)
_KNOWN: dict[str, Quantity[Any]] = {**QUANTITIES, MARGIN: _MARGIN}


def _shown(page_plots: Sequence[Plot]) -> dict[str, Quantity[Any]]:
    """What some plot of the page may show; a check from outside may name what is not measured."""
    wanted = (*(name for plot in page_plots for name in plot.quantities), *HEATMAPS)
    return {name: _KNOWN[name] for name in wanted if name in _KNOWN}


def _cell(named: Named) -> dict[str, Any]:
    judged = named.judged
    return {
        "label": named.label,
        "group": named.group,
        "colour": named.colour,
        "dash": named.dash,
        "claim": judged.verdict is not None,
        "verdict": str(judged.verdict.kind) if judged.verdict else None,
    }


def _run(index: int, named: Named, run: RunLog, facts: RunFacts, shown: Mapping[str, Quantity[Any]]) -> dict[str, Any]:
    values, nulls = {}, {}
    for name, quantity in shown.items():
        rows = quantity.series(run)
        if any(value is not None for row in rows for value in row or ()):
            values[name] = _by_layer(rows)
        if (band := _null(run, quantity)) is not None:
            nulls[name] = band
    margins = _margins(run, _opponent(named.judged))
    if any(value is not None for value in margins):
        values[MARGIN] = [[short(value) for value in margins]]
    return {
        "cell": index,
        "seed": "?" if run.spec.seed is None else str(run.spec.seed),
        "log": visible(run.name, keep=""),
        "epochs": [row.epoch for row in run.epochs],
        "probes": [row.epoch for row in run.probes],
        "exact": [layer for layer, exact in enumerate(facts.exact) if exact],
        "values": values,
        "nulls": nulls,
        "fires": _fires(named.judged, run),
    }


def _fires(judged: JudgedCell, run: RunLog) -> dict[str, int]:
    """Since which epoch each check fires that fires at the end, in the run or, where seeds are pooled, in the cell."""
    firing = {outcome.name for outcome in judged.outcomes if outcome.ruling is Ruling.FIRES}
    own = next((t.firings for t in judged.timelines if (t.log, t.seed) == (run.name, run.spec.seed)), {})
    histories = own | judged.pooled_history
    return {
        name: history.first
        for name, history in histories.items()
        if name in firing and history.first is not None and history.recovered is None
    }


def _by_layer(rows: Sequence[Numbers | None]) -> list[list[float | int | None]]:
    """From one list per row to one list per layer."""
    layers = max(len(row) for row in rows if row is not None)
    return [
        [short(row[layer]) if row is not None and layer < len(row) else None for row in rows] for layer in range(layers)
    ]


def _null(run: RunLog, quantity: Quantity[Any]) -> dict[str, Any] | None:
    """Lower and upper edge of the null band per layer, at the epochs of the expensive probes."""
    tests = [quantity.null(row) for row in run.probes]
    low: list[Numbers | None] = []
    high: list[Numbers | None] = []
    for test in tests:
        pairs = [] if test is None else list(zip(test.mean, test.sd, strict=False))
        low.append([None if m is None or s is None else m - NULL_SDS * s for m, s in pairs])
        high.append([None if m is None or s is None else m + NULL_SDS * s for m, s in pairs])
    if all(value is None for row in low for value in row or ()):
        return None
    return {"low": _by_layer(low), "high": _by_layer(high)}


def _opponent(judged: JudgedCell) -> Baseline | None:
    """What decided the depth of a claim: the readouts where its outcome names them, else its baseline."""
    named = {log for outcome in judged.outcomes for log in (outcome.baseline or {}).get("logs", ())}
    deciding = [runs for runs in judged.cell.related.readouts if any(run.name in named for run in runs)]
    return Baseline(deciding[0]) if deciding else judged.cell.baseline


def _margins(run: RunLog, baseline: Baseline | None) -> list[float | None]:
    """Accuracy less the opponent's at the same epoch and seed (else over all of its seeds), in percentage points."""
    if baseline is None:
        return []
    twins = [twin for twin in baseline.runs if twin.spec.seed == run.spec.seed] or list(baseline.runs)
    at: dict[int, list[float]] = {}
    for twin in twins:
        for row in twin.epochs:
            if (value := ACCURACY.at(row, twin.units)) is not None:
                at.setdefault(row.epoch, []).append(value)
    found: list[float | None] = []
    for row in run.epochs:
        theirs = at.get(row.epoch, []) if baseline.accuracy is None else [baseline.accuracy]
        value = ACCURACY.at(row, run.units)
        found.append(100 * (value - fmean(theirs)) if theirs and value is not None else None)
    return found


def _lines(quantities: Iterable[str], names: Names) -> dict[str, list[dict[str, Any]]]:
    """Lines across a plot: the threshold of the check that judges a quantity, zero for cosines, chance for accuracy."""
    judges = {name: check for check in names.audit.protocol.checks if check.plot for name in check.plot.lines}
    found: dict[str, list[dict[str, Any]]] = {}
    for name in quantities:
        lines: list[dict[str, Any]] = []
        if name in judges:
            value, label = judges[name].line()
            lines.append({"value": value, "label": label})
        if (name in QUANTITIES and QUANTITIES[name].angle) or name in (MARGIN, "rho", "nudge"):
            lines.append({"value": 0, "label": ""})
        if name == "accuracy":
            levels = {level for named in names.cells if (level := named.judged.decision.chance) is not None}
            lines += [{"value": level, "label": f"chance {number(level)}"} for level in sorted(levels)]
        if lines:
            found[name] = lines
    return found
