"""The decision table: what accuracy alone says of a method, what accuracy and Γ say, and what the checks say."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from creditscope.protocol.accuracies import chance, is_unequal
from creditscope.protocol.cells import Cell, mean_accuracy
from creditscope.quantities.per_epoch import BALANCED_ACCURACY, GAMMA_ACTING, GAMMA_PUBLISHED
from creditscope.records.log import RunLog

Says = Literal["looks like learning", "does not", "not measured"]


@dataclass(frozen=True)
class Decision:
    """What the usual numbers say of a cell.

    Args:
        accuracy: Mean over seeds, a fraction.
        chance: Majority-class rate of the evaluated labels; None when the log does not say.
        gamma: Mean over seeds of the aggregate cosine, in the published index where it was logged.
        by_accuracy: Accuracy above chance?
        by_accuracy_and_gamma: Accuracy above chance and Γ above 0?
    """

    accuracy: float | None
    chance: float | None
    gamma: float | None
    by_accuracy: Says
    by_accuracy_and_gamma: Says

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "accuracy": self.accuracy,
            "chance": self.chance,
            "gamma": self.gamma,
            "by_accuracy": self.by_accuracy,
            "by_accuracy_and_gamma": self.by_accuracy_and_gamma,
        }


def decide(cell: Cell) -> Decision:
    """Judge a cell the way most papers do.

    Args:
        cell: The runs.
    """
    accuracy, level, gamma = mean_accuracy(cell.runs), chance(cell.spec), _gamma(cell.runs)
    above = None if accuracy is None or level is None else accuracy > level
    aligned = None if gamma is None else gamma > 0
    both = False if False in (above, aligned) else None if None in (above, aligned) else True
    return Decision(accuracy, level, gamma, _says(above), _says(both))


def balanced_accuracy(cell: Cell) -> float | None:
    """Mean balanced accuracy over seeds where the classes differ by more than 10 %; None where they do not.

    Args:
        cell: The runs.
    """
    if not is_unequal(cell.spec):
        return None
    known = [value for run in cell.runs if (value := BALANCED_ACCURACY.last(run)) is not None]
    return fmean(known) if known else None


def _gamma(runs: tuple[RunLog, ...]) -> float | None:
    values = []
    for run in runs:
        published = GAMMA_PUBLISHED.last(run)
        value = GAMMA_ACTING.last(run) if published is None else published
        if value is not None:
            values.append(value)
    return fmean(values) if values else None


def _says(answer: bool | None) -> Says:
    return "not measured" if answer is None else "looks like learning" if answer else "does not"
