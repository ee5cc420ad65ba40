"""``creditscope show``: one run, in full."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from creditscope.cli.options import Form, Methods, TextOrJson, Where, read_logs
from creditscope.cli.say import say

if TYPE_CHECKING:
    from creditscope.quantities import Quantity
    from creditscope.records import EpochRow, RunLog


def show(
    log: Annotated[list[Path], typer.Argument(help="A log file, or a folder of which one run is chosen.")],
    where: Where = None,
    methods: Methods = None,
    epochs: Annotated[int, typer.Option(min=1, help="How many epochs to show at most, spread evenly.")] = 12,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every run in full, where there are several.")
    ] = False,
    format_: Form = TextOrJson.text,
) -> None:
    """Show one run: what it is, whence, and its epochs.

    Several runs are listed, a line each, unless -v is given.

    Examples: `creditscope show runs/bp-s42-1a2b3c4d.jsonl`; `creditscope show runs --methods bp --where seed=42`.
    """
    import json

    from creditscope.cli.ls import listing, listing_text
    from creditscope.errors import BadInput

    loaded = read_logs(log, where, methods)
    if not loaded.logs:
        raise BadInput(f"{', '.join(path.name for path in log)}: no run log in it")
    several = len(loaded.logs) > 1 and not verbose
    if format_ is TextOrJson.json:
        runs = listing(loaded.logs) if several else [_facts(run, epochs) for run in loaded.logs]
        say(json.dumps({"runs": runs}, indent=2, allow_nan=False))
        return
    if several:
        say(listing_text(listing(loaded.logs)))
        say(f"\n{len(loaded.logs)} runs; name one file, choose with --methods and --where, or -v for all in full")
        return
    for run in loaded.logs:
        say(_text(run, epochs))
        for problem in run.problems:
            say(f"{run.name}: {problem}", err=True)


def _facts(run: "RunLog", epochs: int) -> dict[str, Any]:
    """A run for JSON: the spec, the rule's card, where it came from, and each shown epoch's numbers."""
    shown = _quantities()
    return {
        "file": run.name,
        "method": run.spec.method,
        "spec": run.spec.model_dump(mode="json"),
        "rule": run.header.card.model_dump(mode="json"),
        "provenance": dict(run.header.provenance),
        "status": run.end.status if run.end else "unfinished",
        "reason": run.end.reason if run.end else None,
        "problems": list(run.problems),
        "probes": [row.epoch for row in run.probes],
        "epochs": [
            {"epoch": row.epoch} | {q.name: q.read(row, run.units) for q, _ in shown.values()}
            for row in _spread(run, epochs)
        ],
    }


def _quantities() -> "dict[str, tuple[Quantity[EpochRow], str]]":
    """What is shown of an epoch, and how."""
    from creditscope.quantities.per_epoch import ACCURACY, COSINE, GROWTH, HIDDEN, REFERENCE, TEST_LOSS

    return {
        "accuracy": (ACCURACY, ".3f"),
        "loss": (TEST_LOSS, ".3f"),
        HIDDEN.heading: (HIDDEN, ".2g"),
        REFERENCE.heading: (REFERENCE, ".1e"),
        "growth": (GROWTH, ".3g"),
        "cosine where it acts": (COSINE, "+.2f"),
    }


def _spread(run: "RunLog", epochs: int) -> "list[EpochRow]":
    step = max(1, -(-len(run.epochs) // epochs))
    return [*run.epochs[:-1:step], *run.epochs[-1:]]


def _text(run: "RunLog", epochs: int) -> str:
    from creditscope.cli.display import fit
    from creditscope.records.table import Table

    card = run.header.card
    known = _flat(run.spec.model_dump(mode="json"))
    rule = [(f"rule.{key}", value) for key, value in (("formula", card.formula), ("paper", card.paper)) if value]
    facts = Table(("field", "value"), (*known, *rule, *run.header.provenance.items()))
    shown = _quantities()
    rows = [
        (str(row.epoch), *(_numbers(quantity.read(row, run.units), form) for quantity, form in shown.values()))
        for row in _spread(run, epochs)
    ]
    status = run.end.status if run.end else "unfinished"
    reason = f": {run.end.reason}" if run.end and run.end.reason else ""
    title = f"{run.spec.method}, seed {run.spec.seed}\n{run.name}"
    ending = f"{status}{reason}; {len(run.probes)} expensive probes"
    return f"{title}\n\n{fit(facts)}\n\n{fit(Table(('epoch', *shown), tuple(rows)))}\n\n{ending}"


def _flat(fields: dict[str, Any], head: str = "") -> list[tuple[str, str]]:
    """Nested settings as ``optimiser.lr``, as --where takes them; what is not known is left out."""
    found: list[tuple[str, str]] = []
    for key, value in fields.items():
        if isinstance(value, dict):
            found += _flat(value, f"{head}{key}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            found.append((f"{head}{key}", text))
    return found


def _numbers(values: list[float | None] | None, form: str) -> str:
    return " ".join("–" if value is None else format(value, form) for value in values or (None,))
