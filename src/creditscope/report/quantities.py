"""What the plots can show: each quantity's name, where and when it is measured, and how to read it from a log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from creditscope.protocol.facts import RunFacts
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow, NullTest, Numbers, ProbeRow

Place = Literal["state", "block", "one"]
When = Literal["epoch", "probe"]
# 98 % of a normal null lie within this many standard deviations; the p values in the tables come from the redraws.
NULL_SDS = 2.326


@dataclass(frozen=True)
class Quantity:
    """Something measured over a run.

    Args:
        label: For the axis.
        place: Per state, per block, or one number.
        log: Whether its axis is logarithmic at first; None when a logarithm makes no sense.
        angle: Whether it is a cosine, which may be read in degrees.
        of_epoch: Reads it from an epoch row; None for an expensive probe.
        of_probe: Reads it from a probe row; None for an epoch row.
        null: Name of the quantity whose null band belongs behind it.
    """

    label: str
    place: Place
    log: bool | None
    angle: bool = False
    of_epoch: Callable[[EpochRow, RunFacts], Numbers | None] | None = None
    of_probe: Callable[[ProbeRow], Numbers | None] | None = None
    null: Callable[[ProbeRow], NullTest | None] | None = None

    @property
    def when(self) -> When:
        """In which rows it stands."""
        return "epoch" if self.of_epoch is not None else "probe"

    def read(self, run: RunLog, facts: RunFacts) -> list[Numbers | None]:
        """Its values at every row of the right kind, in order.

        Args:
            run: The log.
            facts: Units of the log.
        """
        if self.of_epoch is not None:
            return [self.of_epoch(row, facts) for row in run.epochs]
        assert self.of_probe is not None
        return [self.of_probe(row) for row in run.probes]


def _one(value: float | None) -> Numbers | None:
    return None if value is None else [value]


def _reference(row: EpochRow, facts: RunFacts) -> Numbers | None:
    if row.reference is None:
        return None
    return [None if value is None else value * facts.reference_factor for value in row.reference.median]


def _movement(row: EpochRow, facts: RunFacts) -> Numbers | None:
    """Per block, the largest movement among its weight matrices: what the check looks at."""
    if row.movement is None:
        return None
    found: list[float | None] = []
    for names in row.movement.blocks:
        known = [value for name in names if (value := row.movement.weights.get(name)) is not None]
        found.append(max(known, default=None))
    return found


def _largest(row: EpochRow, facts: RunFacts) -> Numbers | None:
    """What the scale check looks at."""
    return _one(max((value for value in row.growth or () if value is not None), default=None))


def _stillest(row: EpochRow, facts: RunFacts) -> Numbers | None:
    """What the movement check looks at: the smallest over the blocks that train."""
    blocks = _movement(row, facts)
    if blocks is None or row.movement is None:
        return None
    trained = [value for value, trains in zip(blocks, row.movement.trainable, strict=False) if trains]
    known = [value for value in trained if value is not None]
    return _one(min(known)) if known and len(known) == len(trained) else None


def _error(row: ProbeRow) -> Numbers | None:
    return None if row.fidelity is None else row.fidelity.error or _errors(row.fidelity.median)


def _errors(phis: Sequence[float | None]) -> Numbers:
    return [None if phi is None else max(0.0, 1 - phi * phi) ** 0.5 for phi in phis]


def _gamma(name: str) -> Callable[[EpochRow, RunFacts], Numbers | None]:
    return lambda row, facts: _one(getattr(row.gamma, name)) if row.gamma is not None else None


QUANTITIES: dict[str, Quantity] = {
    "growth_max": Quantity("largest growth over blocks", "one", True, of_epoch=_largest),
    "growth": Quantity("growth ‖h_{l+1}‖/‖h_l‖", "block", True, of_epoch=lambda row, _: row.growth),
    "hidden": Quantity(
        "stream ‖h_l‖, median", "state", True, of_epoch=lambda row, _: row.hidden.median if row.hidden else None
    ),
    "branch": Quantity("branch ‖f_l‖/‖h_l‖, median", "block", True, of_epoch=lambda row, _: row.branch),
    "gain": Quantity("gain ‖g_l‖/‖e‖, median", "state", True, of_epoch=lambda row, _: row.gain),
    "reference": Quantity("reference ‖g_l‖ per sample, median", "state", True, of_epoch=_reference),
    "accuracy": Quantity("test accuracy", "one", False, of_epoch=lambda row, _: _one(row.test_accuracy)),
    "test_loss": Quantity("test loss (nats)", "one", False, of_epoch=lambda row, _: _one(row.test_loss)),
    "train_loss": Quantity("training loss (nats)", "one", False, of_epoch=lambda row, _: _one(row.train_loss)),
    "fidelity": Quantity("cosine error √(1 − φ²) of the reference", "state", True, of_probe=_error),
    "clamp": Quantity(
        "clamp onset N* (probe size)", "state", True, of_probe=lambda row: row.clamp.onset if row.clamp else None
    ),
    "cosine": Quantity(
        "cosine of credit and reference, where it acts",
        "state",
        None,
        angle=True,
        of_epoch=lambda row, _: row.cosine.mean if row.cosine else None,
        null=lambda row: row.null,
    ),
    "published": Quantity(
        "cosine in the published index (one block off)",
        "state",
        None,
        angle=True,
        of_epoch=lambda row, _: row.cosine_published.mean if row.cosine_published else None,
        null=lambda row: row.null_published,
    ),
    "gradient": Quantity(
        "gradient cosine: the rule's against BP's",
        "block",
        None,
        angle=True,
        of_probe=lambda row: row.gradient_cosine,
        null=lambda row: row.gradient_null,
    ),
    "rho": Quantity(
        "ρ: credit against true loss change", "state", None, of_probe=lambda row: row.rho.credit if row.rho else None
    ),
    "nudge": Quantity(
        "nudge efficiency: credit against gradient",
        "state",
        None,
        of_probe=lambda row: row.nudge.efficiency if row.nudge else None,
    ),
    "descent": Quantity(
        "step descent: cosine of the step and BP's gradient",
        "block",
        None,
        angle=True,
        of_probe=lambda row: row.step_descent,
    ),
    "stillest": Quantity("movement of the stillest block", "one", True, of_epoch=_stillest),
    "movement": Quantity("movement of the block's weights", "block", True, of_epoch=_movement),
    "probe_accuracy": Quantity(
        "probe accuracy of a ridge readout", "state", False, of_probe=lambda row: row.probe_accuracy
    ),
    "drift": Quantity(
        "drift at N = 128", "one", False, of_probe=lambda row: _one(row.drift.at_128) if row.drift else None
    ),
    "participation": Quantity("participation ratio of h_l", "state", True, of_probe=lambda row: row.participation),
    "gamma_published": Quantity("Γ, published index", "one", None, angle=True, of_epoch=_gamma("published")),
    "gamma_acting": Quantity("Γ, where the credit acts", "one", None, angle=True, of_epoch=_gamma("acting")),
    "gamma_deep": Quantity("Γ, deep states only", "one", None, angle=True, of_epoch=_gamma("deep")),
}
