"""How the runs were made and where the numbers come from: recipe, runs and provenance as tables."""

from typing import Any

from creditscope.records.log import RunLog
from creditscope.records.spec import RunSpec
from creditscope.records.table import Table
from creditscope.report.labels import Names

NOT_STATED = "not stated"
_RECIPE = (
    "model",
    "width",
    "depth",
    "terminal_ln",
    "view",
    "data",
    "classes",
    "targets",
    "epochs",
    "batch",
    "optimiser",
    "schedule",
    "augment",
    "dtype",
    "matmul",
    "probe",
    "origin",
)


def recipe_table(names: Names) -> Table:
    """What the runs of each experiment share; a field that differs lists its values."""
    columns = ["field", *(names.groups if len(names.groups) > 1 else ["value"])]
    rows = []
    for field in _RECIPE:
        entries = []
        for index in range(len(names.groups)):
            specs = [run.spec for named in names.cells if named.group == index for run in named.judged.cell.runs]
            entries.append("; ".join(dict.fromkeys(entry(spec, field) for spec in specs)))
        rows.append((field.replace("_", " "), *entries))
    return Table(tuple(columns), tuple(rows))


def entry(spec: RunSpec, field: str) -> str:
    """One field of a spec in words.

    Args:
        spec: The run.
        field: Its name.
    """
    value: Any = spec.model_text if field == "model" else spec.model_dump(mode="json")[field]
    if value is None:
        value = (spec.recipe or {}).get(field)
    if value is None:
        return NOT_STATED
    if field == "data":
        sizes = f", {value['n_train']} training and {value['n_test']} test samples" if value["n_train"] else ""
        mark = f", test set {value['hash_test'][:8]}" if value["hash_test"] else ""
        return f"{value['name']}{sizes}{mark}"
    if isinstance(value, dict):
        return ", ".join(
            _word(part) if key == "name" else f"{key.replace('_', ' ')} {_word(part)}"
            for key, part in value.items()
            if part is not None
        )
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def provenance_table(names: Names) -> Table:
    """On what the runs were made: one row per distinct set of versions and device."""
    made: dict[tuple[tuple[str, str], ...], list[RunLog]] = {}
    for named in names.cells:
        for run in named.judged.cell.runs:
            made.setdefault(tuple(sorted(run.header.provenance.items())), []).append(run)
    rows = []
    for facts, runs in made.items():
        sources = dict.fromkeys(f"{key} {value}" for run in runs for key, value in (run.header.source or {}).items())
        created = sorted(run.header.time_created for run in runs if run.header.time_created)
        when = (
            created[0]
            if created and created[0] == created[-1]
            else " to ".join((created[0], created[-1]))
            if created
            else NOT_STATED
        )
        where = ", ".join(f"{key} {value}" for key, value in facts) or NOT_STATED
        rows.append((str(len(runs)), where, when, "; ".join(sources) or "–"))
    return Table(("runs", "versions and device", "begun", "imported from"), tuple(rows))
