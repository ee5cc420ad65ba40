"""What the pages made from results share: the logs, which runs a page means, and how numbers are written."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

from creditscope.quantities.per_epoch import ACCURACY, GROWTH, HIDDEN, REFERENCE
from creditscope.records import EpochRow, RunLog
from creditscope.records.load import Loaded, load_logs
from creditscope.records.table import Table
from creditscope.records.units import PUBLISHED_PROBE_SIZE, Units

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results" / "cifar10-h200"
# The published gradients are those of a loss averaged over this many samples; ours are per sample.
PUBLISHED_N = PUBLISHED_PROBE_SIZE
OURS = Units()
NOT_MEASURED = "not measured"
MADE = "<!-- Written by `python docs/{script}` from results/cifar10-h200. Change the script, not this page. -->"


@cache
def results() -> Loaded:
    """Every committed log."""
    return load_logs(RESULTS)


def runs(
    method: str,
    epochs: int,
    model: str = "resmlp",
    terminal_ln: bool = True,
    targets: str = "labels",
) -> list[RunLog]:
    """The runs of one cell, by seed.

    Args:
        method: The method name.
        epochs: The epochs planned.
        model: The model.
        terminal_ln: Whether a LayerNorm stands before the head.
        targets: ``labels`` or ``random``.
    """
    wanted = (method, epochs, model, terminal_ln, targets)
    found = [log for log in results().logs if _facts(log) == wanted]
    if not found:
        raise LookupError(f"no run of {wanted} among the results")
    return sorted(found, key=lambda log: log.spec.seed or 0)


def _facts(log: RunLog) -> tuple[object, ...]:
    spec = log.spec
    return spec.method, spec.epochs, spec.model, spec.terminal_ln, spec.targets


def number(value: float | None) -> str:
    """A value as the pages write it: four digits, an exponent when it is far from 1."""
    if value is None:
        return "never"
    if isinstance(value, int):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"
    return f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def mean_sd(values: Sequence[float | None]) -> str:
    """Mean ± standard deviation over seeds; ``–`` when a seed has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return "–"
    mean = number(float(fmean(known)))
    if len(known) == 1:
        return mean
    sd = stdev(float(value) for value in known)
    # A standard deviation is written like its mean: 0.3524 ± 0.0003, 1.53e9 ± 5.94e8.
    return f"{mean} ± {number(sd) if 'e' in mean or '.' not in mean else f'{sd:.4f}'}"


def span(values: Iterable[float]) -> str:
    """Smallest and largest value."""
    known = list(values)
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low}…{high}"


def page(script: str, text: str) -> str:
    """The page as its file holds it, with the note that a script wrote it.

    Args:
        script: Which script makes it.
        text: Its content.
    """
    return f"{MADE.format(script=script)}\n\n{text.strip()}\n"


def each(values: Iterable[float]) -> str:
    """Every value, in order."""
    return ", ".join(number(float(value)) for value in values)


def known(values: Sequence[float | None] | None) -> list[float]:
    """The values, all of which must have been measured."""
    assert values is not None
    found = [value for value in values if value is not None]
    assert len(found) == len(values), "a value was not measured"
    return found


def last(log: RunLog) -> EpochRow:
    """The last logged epoch."""
    assert log.last is not None
    return log.last


def accuracy(log: RunLog) -> float:
    """Test accuracy at the last logged epoch."""
    (value,) = known([ACCURACY.last(log)])
    return value


def stream(row: EpochRow, state: int = -1) -> float:
    """Median ‖h_l‖, of the last state by default."""
    return known(HIDDEN.read(row, OURS))[state]


def references(row: EpochRow) -> list[float]:
    """Median ‖g_l‖ at every state, per sample."""
    return known(REFERENCE.read(row, OURS))


def reference(row: EpochRow) -> float:
    """Median ‖g_L‖, per sample."""
    return references(row)[-1]


def growth(row: EpochRow) -> float:
    """Largest growth of a block."""
    return max(known(GROWTH.read(row, OURS)))


def share(value: float) -> str:
    """A share, in per cent."""
    return f"{100 * value:.1f} %"


def markdown_table(heads: Sequence[str], lines: Sequence[tuple[str, ...]]) -> str:
    """A table of texts.

    Args:
        heads: Its columns.
        lines: Its rows.
    """
    return Table(tuple(heads), tuple(lines)).to_markdown().strip()


def provenance_line(facts: Mapping[str, str]) -> str:
    """Where numbers come from, to stand under their table.

    Args:
        facts: Of a results file or a log.
    """
    return "*" + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in facts.items()) + "*"
