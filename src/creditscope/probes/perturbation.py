"""Probes that move a state and look at the loss: ρ and nudge. All in float64, in the run's view of a state."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from creditscope.blocks import Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.functional.cosine import units
from creditscope.probes.functional.norms import norm_stats, vector_norms
from creditscope.probes.functional.nudge import efficiency, mean_change, nudge_step
from creditscope.probes.functional.rho import pearson, predicted_changes
from creditscope.probes.functional.tokens import lift
from creditscope.probes.probe import (
    Measured,
    Need,
    Probe,
    credits_in_view,
    exact_twin,
    numbers,
    references_in_view,
    states_in_view,
)
from creditscope.probes.streams import gaussian, stream
from creditscope.records.rows import Nudge, Rho

EPSILON = 1e-3
ETA = 1e-2
# Entries of the perturbed states held at once; fixed, so that draws do not depend on the device.
ENTRIES = 2**22


@dataclass(frozen=True)
class RhoProbe(Probe):
    """Does the credit predict loss changes?

    Measures: Pearson correlation over (sample, direction) of ⟨c, εv⟩ with ℓ(h + εv) − ℓ(h), ε = 1e-3·med‖h‖.
    Healthy: the control, ρ of the true gradient, is ≥ .98; below that nothing is judged.
    Fooled by: norms (it is a norm-weighted cosine at first order), float32, a step that is absolute in size.
    Null: the random vector given beside it, which lies near 0.

    Every sample has its own directions: with directions shared by all samples the value would scatter as if there
    were no more pairs than directions. In view ``cls`` only that token moves, in ``mean`` every token by one vector.

    Args:
        directions: M, directions a sample.
    """

    directions: int = 32

    name: ClassVar[str] = "rho"
    unit: ClassVar[str] = "correlation"
    needs: ClassVar[tuple[Need, ...]] = ("states", "references", "tail")
    fields: ClassVar[tuple[str, ...]] = ("rho",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """One tail pass per state over samples × directions."""
        if self.directions < 1:
            raise NotMeasured("rho wants at least one direction, got directions = 0; raise probe.directions")
        twin = exact_twin(snapshot)
        credit, missing = _credit_or_reason(twin, "rho.credit")
        steps = EPSILON * _medians(twin)
        rows: list[list[Tensor]] = [[], [], []]
        for level, g in enumerate(references_in_view(twin)):
            generator = stream(snapshot.seed, snapshot.epoch, f"rho/{level}", g.device)
            noise = gaussian(tuple(g.shape), generator)
            signals = (credit[level] if credit else torch.zeros_like(g), g, noise)
            for row, value in zip(rows, self._at(twin, level, signals, steps[level], generator), strict=True):
                row.append(value)
        rho = Rho(
            credit=numbers(rows[0]),
            control=numbers(rows[1]),
            random=numbers(rows[2]),
            directions=self.directions,
            epsilon=numbers(steps),
        )
        return Measured({"rho": rho}, missing)

    def _at(
        self, twin: Snapshot, level: int, signals: tuple[Tensor, ...], step: Tensor, generator: torch.Generator
    ) -> list[Tensor]:
        """ρ of each signal at one state."""
        h, (x, y), view = twin.seen.states[level], twin.probe, twin.view
        m, shape = self.directions, tuple(h.shape[1:])
        predicted: list[list[Tensor]] = [[] for _ in signals]
        changes = []
        for rows in _chunks(len(h), max(1, ENTRIES // (m * math.prod(shape)))):
            width = signals[0].shape[1]
            directions = units(gaussian((len(h[rows]), m, width), generator))[0]
            moved = h[rows].repeat_interleave(m, dim=0) + step * lift(directions.flatten(0, 1), shape, view)
            after = twin.tail_loss(level, moved, y[rows].repeat_interleave(m, dim=0), x=x[rows])
            before = twin.tail_loss(level, h[rows], y[rows], x=x[rows])
            changes.append(after.reshape(-1, m) - before.unsqueeze(1))
            for kept, signal in zip(predicted, signals, strict=True):
                kept.append(predicted_changes(signal[rows], directions, step))
        return [pearson(torch.cat(kept), torch.cat(changes)) for kept in predicted]


@dataclass(frozen=True)
class NudgeProbe(Probe):
    """Does a step along the credit lower the loss?

    Measures: mean ℓ(h − η·med‖h‖·c/‖c‖) − ℓ(h), η = 1e-2, for the credit, the true gradient and a random vector.
    Healthy: negative for the credit, with an efficiency of some tenths of the gradient's.
    Fooled by: samples with a zero vector (left out for all three); curvature, since the step is not infinitesimal.
    Null: the random unit vector given beside it.
    """

    name: ClassVar[str] = "nudge"
    unit: ClassVar[str] = "nats"
    needs: ClassVar[tuple[Need, ...]] = ("states", "references", "tail")
    fields: ClassVar[tuple[str, ...]] = ("nudge",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """Four tail passes per state."""
        twin = exact_twin(snapshot)
        credit, missing = _credit_or_reason(twin, "nudge.credit")
        sizes = ETA * _medians(twin)
        against: list[list[Tensor]] = [[], [], []]
        for level, g in enumerate(references_in_view(twin)):
            noise = gaussian(tuple(g.shape), stream(snapshot.seed, snapshot.epoch, f"nudge/{level}", g.device))
            signals = (credit[level] if credit else None, g, noise)
            for row, value in zip(against, _changes(twin, level, signals, sizes[level]), strict=True):
                row.append(value)
        shares = [efficiency(c, g) for c, g in zip(against[0], against[1], strict=True)]
        nudge = Nudge(
            credit=numbers(against[0]),
            reference=numbers(against[1]),
            random=numbers(against[2]),
            efficiency=numbers(shares),
            eta=ETA,
        )
        return Measured({"nudge": nudge}, missing)


def _changes(twin: Snapshot, level: int, signals: Sequence[Tensor | None], size: Tensor) -> Iterator[Tensor]:
    """Mean loss change against each signal, over the samples where every one has a direction; NaN without a signal."""
    h, y = twin.seen.states[level], twin.probe.y
    before = twin.tail_loss(level, h, y)
    steps = [None if signal is None else nudge_step(signal, size) for signal in signals]
    counted = torch.stack([step[1] for step in steps if step is not None]).all(dim=0)
    for step in steps:
        if step is None:
            yield before.new_tensor(math.nan)
        else:
            after = twin.tail_loss(level, h + lift(step[0], tuple(h.shape[1:]), twin.view), y)
            yield mean_change(before, after, counted)


def _medians(twin: Snapshot) -> Tensor:
    return norm_stats(torch.stack([vector_norms(h) for h in states_in_view(twin)])).median


def _credit_or_reason(twin: Snapshot, part: str) -> tuple[list[Tensor], dict[str, str]]:
    """The credit, or nothing and the reason: the control and the random vector are worth having without it."""
    try:
        return credits_in_view(twin), {}
    except NotMeasured as why:
        return [], {part: str(why)}


def _chunks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, start + size)
