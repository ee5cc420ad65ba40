"""What is shown in a terminal as text: verdicts in colour, the plan of a training, and its summary."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from creditscope.protocol.brief import tally
from creditscope.protocol.cells import cells_of
from creditscope.protocol.present import Section, render
from creditscope.quantities.per_epoch import ACCURACY, GAMMA_DEEP, GAMMA_PUBLISHED, GROWTH_MAX, HIDDEN, REFERENCE
from creditscope.records import RunLog, RunSpec
from creditscope.records.table import Table, visible

if TYPE_CHECKING:
    from creditscope.protocol.audit import Audit

_COLOURS = {
    "trustworthy": "green",
    "passes": "green",
    "walked back": "red",
    "fires": "red",
    "incomplete": "yellow",
    "undecided": "yellow",
    "not measured": "yellow",
}
_VERDICT = re.compile(r"\b(trustworthy|walked back|incomplete)\b")
# A line that says what one check found, indented under its method.
_RULING = re.compile(r"^(  [\w-]+(?: \(advisory\))? )(passes|fires|undecided|not measured)(?=[,:])", re.MULTILINE)


def say_verdicts(audit: "Audit", sections: Sequence[Section], width: int | None) -> None:
    """Print an audit for a terminal, in colour where there is one, and at last how many claims stand.

    Args:
        audit: The audit.
        sections: What to print of it.
        width: Columns of the terminal; None never wraps.
    """
    text = visible(f"{render(sections, 'table', width)}\n\n{tally(audit)}")
    typer.echo(painted(text) if has_colour() else text)


def has_colour() -> bool:
    """Whether stdout is a terminal whose user wants colour (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str) -> str:
    """A text with its verdicts and its outcomes in colour.

    Args:
        text: As ``render`` makes it; no escape sequence of a log comes through there.
    """
    found = _RULING.sub(lambda hit: hit[1] + typer.style(hit[2], fg=_COLOURS[hit[2]]), text)
    return _VERDICT.sub(lambda hit: typer.style(hit[1], fg=_COLOURS[hit[1]], bold=True), found)


def steps_of(spec: RunSpec) -> int:
    """How many optimiser steps a run takes.

    Args:
        spec: The run.
    """
    n = spec.data.n_train if spec.data else None
    return (spec.epochs or 0) * ((n or 0) // (spec.batch or 1))


def plan_text(fleets: Sequence[Sequence[RunSpec]]) -> str:
    """Which runs would be trained, in which fleets.

    Args:
        fleets: The fleets.
    """
    rows = []
    for number, fleet in enumerate(fleets, 1):
        spec = fleet[0]
        methods = ", ".join(dict.fromkeys(member.method for member in fleet))
        bare = ", no terminal LN" if spec.terminal_ln is False else ""
        model = f"{spec.model_text} d={spec.width} L={spec.depth}{bare}"
        data = spec.data.name if spec.data else "?"
        rows.append((str(number), model, data, str(spec.epochs), str(steps_of(spec)), str(len(fleet)), methods))
    table = Table(("fleet", "model", "data", "epochs", "steps", "runs", "methods"), tuple(rows))
    return f"{fit(table)}\n{sum(map(len, fleets))} runs in {len(fleets)} fleet(s)"


def summary_text(logs: Sequence[RunLog]) -> str:
    """One line a method: what the usual pair says, and what lies beneath.

    Args:
        logs: The finished logs.
    """
    shown = (
        (ACCURACY, ".3f"),
        (GAMMA_PUBLISHED, "+.3f"),
        (GAMMA_DEEP, "+.3f"),
        (GROWTH_MAX, ".3g"),
        (HIDDEN, ".2g"),
        (REFERENCE, ".2g"),
    )
    rows = [
        (
            cell.label,
            str(len(cell.runs)),
            *(_mean([quantity.last(run) for run in cell.runs], form) for quantity, form in shown),
            ", ".join(sorted({run.end.status if run.end else "unfinished" for run in cell.runs})),
        )
        for cell in cells_of(logs)
    ]
    columns = ("method", "seeds", *(quantity.symbol_at("L") for quantity, _ in shown), "status")
    last = REFERENCE.symbol_at("L")
    note = f"means over seeds at the last epoch; Γ in the published index; {last} {REFERENCE.unit}"
    return f"{fit(Table(columns, tuple(rows)))}\n{note}"


def fit(table: Table) -> str:
    """A table as text for this terminal; unwrapped when piped into another program."""
    return table.to_text(terminal_columns())


def terminal_columns() -> int | None:
    """How wide the terminal is; None where the text goes into a file or another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(sum(known) / len(known), form) if known else "–"
