"""Which plots the page has, and which quantities each may show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from creditscope.protocol.check import Check


@dataclass(frozen=True)
class Plot:
    """One plot.

    Args:
        id: Of its element.
        quantities: What may be chosen, the first at first.
        view: Against epochs or against layers, at first.
        marks: Checks whose firing is marked.
        baselines: Whether frozen runs are drawn too.
    """

    id: str
    quantities: tuple[str, ...]
    view: Literal["epochs", "layers"] = "epochs"
    marks: tuple[str, ...] = ()
    baselines: bool = False


def plots(checks: Sequence[Check], required: Sequence[Check]) -> tuple[Plot, ...]:
    """The plots of a page: one for each check that has one, then those over time.

    Args:
        checks: The checks of the page.
        required: Those that count: where they fire is marked in the plots over time.
    """
    own = [
        Plot(f"plot-{check.name}", check.plot.quantities, check.plot.view, (check.name,), check.plot.baselines)
        for check in checks
        if check.plot is not None
    ]
    marks = tuple(check.name for check in required)
    return (*own, *(Plot(f"plot-{name}", quantities, "epochs", marks) for name, quantities in _OVER_TIME.items()))


_OVER_TIME = {
    "accuracy": ("accuracy", "test_loss", "train_loss"),
    "stream": ("hidden",),
    "gradient": ("reference", "gain"),
    "gamma": ("gamma_published", "gamma_acting", "gamma_deep"),
}

# Drawn layer by epoch for every claim, whatever the protocol: where credit points, how it shrinks, how states grow.
HEATMAPS = ("cosine", "gain", "growth")
