"""Labels: a method name, and what tells a cell from the others it is shown with."""

from collections.abc import Callable, Sequence
from typing import Any

from creditscope.records.spec import RunSpec
from creditscope.records.spec_parts import OptimiserSpec

# Runs that differ in one of these are not comparable at a glance, so the label says which is which.
_COMPARE = ("model", "data", "depth", "width", "terminal_ln", "epochs", "targets")
_LONGEST_NAME = 40
_REST = (
    *("view", "origin", "batch", "optimiser", "schedule", "augment", "dtype", "matmul", "classes"),
    *("injection", "feedback", "probe", "recipe"),
)


def labels_of(specs: Sequence[RunSpec]) -> list[str]:
    """One label a cell: its method, and whatever tells it from the others.

    Args:
        specs: One spec of each cell.
    """
    shown = [name for name in _COMPARE if len({_word(spec, name) for spec in specs if _known(spec, name)}) > 1]
    for name in ("width", "depth"):
        # Sizes that only ever differ where the model does say nothing new.
        by_model = {(spec.model, getattr(spec, name)) for spec in specs}
        if "model" in shown and name in shown and len(by_model) == len({spec.model for spec in specs}):
            shown.remove(name)
    labels = [_label(spec, shown) for spec in specs]
    for name in _REST:
        alike = [i for i, label in enumerate(labels) if labels.count(label) > 1]
        if len({_word(specs[i], name) for i in alike}) > 1:
            labels = [_add(old, _word(specs[i], name)) if i in alike else old for i, old in enumerate(labels)]
    return [
        f"{label} #{spec.cell_key[:6]}" if labels.count(label) > 1 else label
        for label, spec in zip(labels, specs, strict=True)
    ]


def _label(spec: RunSpec, shown: Sequence[str]) -> str:
    label = " ".join(spec.method.split())
    label = label if len(label) <= _LONGEST_NAME else f"{label[: _LONGEST_NAME - 1]}…"
    for name in shown:
        label = _add(label, _word(spec, name)) if _known(spec, name) else label
    return label


def _add(label: str, word: str) -> str:
    """Put one more qualifier into a label's parentheses."""
    if not word:
        return label
    return f"{label[:-1]}, {word})" if label.endswith(")") else f"{label} ({word})"


def _known(spec: RunSpec, name: str) -> bool:
    return getattr(spec, name) is not None


def _word(spec: RunSpec, name: str) -> str:
    value: Any = getattr(spec, name)
    if name == "terminal_ln":
        return "" if value is not False else "no terminal LN"
    if value is None:
        return f"{name} unknown"
    texts: dict[str, Callable[[], str]] = {
        "model": lambda: spec.model_text or "",
        "data": lambda: str(value.name),
        "depth": lambda: f"L = {value}",
        "width": lambda: f"d = {value}",
        "epochs": lambda: f"{value} epochs",
        "targets": lambda: "random targets" if value == "random" else "",
        "origin": lambda: {"engine": "", "watch": "watched", "import": "imported"}[value],
        "batch": lambda: f"batch {value}",
        "optimiser": lambda: f"{_momentum(value)}lr {value.lr:g}, decay {value.weight_decay:g}",
        "feedback": lambda: f"feedback {value.dist} {value.scale}",
        "probe": lambda: f"probe {value.n} {value.reduction}",
        "recipe": lambda: ", ".join(value.values()),
    }
    return texts[name]() if name in texts else str(value)


def _momentum(optimiser: OptimiserSpec) -> str:
    return "" if optimiser.momentum is None else f"{optimiser.name} momentum {optimiser.momentum:g}, "
