"""``creditscope show``: one run, in full."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from creditscope.cli.say import say

if TYPE_CHECKING:
    from creditscope.records import RunLog


def show(
    log: Annotated[Path, typer.Argument(help="One log file.")],
    epochs: Annotated[int, typer.Option(min=1, help="How many epochs to show at most, spread evenly.")] = 12,
) -> None:
    """Show one run: what it is, where it came from, and its states over the epochs."""
    from creditscope.errors import BadInput
    from creditscope.records.load import load_logs

    loaded = load_logs([log])
    for skipped in loaded.skipped:
        say(f"skipped {skipped.file}: {skipped.why}", err=True)
    if not loaded.logs:
        raise BadInput(f"{log.name}: no run log in it")
    for run in loaded.logs:
        say(_text(run, epochs))
        for problem in run.problems:
            say(f"{run.name}: {problem}", err=True)


def _text(run: "RunLog", epochs: int) -> str:
    from creditscope.cli.display import fit
    from creditscope.quantities.per_epoch import ACCURACY, COSINE, GROWTH, HIDDEN, REFERENCE, TEST_LOSS
    from creditscope.records.table import Table

    known = [(key, str(value)) for key, value in run.spec.model_dump(mode="json").items() if value is not None]
    card = run.header.card
    rule = [(f"rule.{key}", value) for key, value in (("formula", card.formula), ("paper", card.paper)) if value]
    facts = Table(("field", "value"), (*known, *rule, *run.header.provenance.items()))
    step = max(1, -(-len(run.epochs) // epochs))
    shown = {
        "accuracy": (ACCURACY, ".3f"),
        "loss": (TEST_LOSS, ".3f"),
        HIDDEN.heading: (HIDDEN, ".2g"),
        REFERENCE.heading: (REFERENCE, ".1e"),
        "growth": (GROWTH, ".3g"),
        "cosine where it acts": (COSINE, "+.2f"),
    }
    rows = [
        (str(row.epoch), *(_numbers(quantity.read(row, run.units), form) for quantity, form in shown.values()))
        for row in [*run.epochs[:-1:step], *run.epochs[-1:]]
    ]
    columns = ("epoch", *shown)
    status = run.end.status if run.end else "unfinished"
    reason = f": {run.end.reason}" if run.end and run.end.reason else ""
    title = f"{run.spec.method}, seed {run.spec.seed} ({run.name})"
    ending = f"{status}{reason}; {len(run.probes)} expensive probes"
    return f"{title}\n\n{fit(facts)}\n\n{fit(Table(columns, tuple(rows)))}\n\n{ending}"


def _numbers(values: list[float | None] | None, form: str) -> str:
    return " ".join("–" if value is None else format(value, form) for value in values or (None,))
