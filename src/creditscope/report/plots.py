"""Which plots stand on the page, and which quantities each may show."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Plot:
    """One plot.

    Args:
        id: Of its element.
        quantities: What may be chosen, the first at first.
        view: Against epochs or against layers, at first.
        marks: Checks whose first firing epoch is marked.
        baselines: Whether frozen runs are drawn too.
    """

    id: str
    quantities: tuple[str, ...]
    view: Literal["epochs", "layers"] = "epochs"
    marks: tuple[str, ...] = ()
    baselines: bool = False


_LIVE = ("scale", "reference", "depth", "fidelity", "direction", "movement")
PLOTS = (
    Plot("plot-scale", ("growth_max", "growth", "hidden", "branch"), "epochs", ("scale",)),
    Plot("plot-reference", ("gain", "reference", "clamp"), "layers", ("reference",)),
    Plot("plot-depth", ("margin", "accuracy"), "epochs", ("depth",), baselines=True),
    Plot("plot-fidelity", ("fidelity", "clamp"), "layers", ("fidelity",)),
    Plot(
        "plot-direction",
        ("cosine", "published", "gradient", "rho", "nudge", "descent"),
        "layers",
        ("direction",),
    ),
    Plot("plot-movement", ("stillest", "movement"), "epochs", ("movement",)),
    Plot("plot-advisory", ("probe_accuracy", "drift", "participation"), "layers", ("drift", "representation")),
    Plot("plot-accuracy", ("accuracy", "test_loss", "train_loss"), "epochs", _LIVE),
    Plot("plot-stream", ("hidden",), "epochs", _LIVE),
    Plot("plot-gradient", ("reference", "gain"), "epochs", _LIVE),
    Plot("plot-gamma", ("gamma_published", "gamma_acting", "gamma_deep"), "epochs", _LIVE),
)
