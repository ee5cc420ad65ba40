"""Probes that move a state and look at the loss: ρ and nudge. All in float64, in the run's view of a state."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

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
    by_state,
    credits_in_view,
    entries_at_once,
    float64_copy,
    lists,
    references_in_view,
    states_in_view,
)
from creditscope.probes.seeds import gaussian, probe_generator
from creditscope.records.measured import Nudge, Rho

EPSILON = 1e-3
ETA = 1e-2
# Entries of the directions drawn at once: fixed, so that draws do not depend on a GPU's memory. On a CPU also those of
# the perturbed states held at once.
ENTRIES, _ENTRIES_GPU = 2**22, 2**25
# On a GPU, the share of its memory that perturbed states may take.
_SHARE_GPU = 1 / 128


@dataclass(frozen=True)
class RhoProbe(Probe):
    """Does the credit predict loss changes?

    Measures: Pearson correlation over (sample, direction) of ⟨c, εv⟩ with ℓ(h + εv) − ℓ(h), ε = 1e-3·med‖h‖.
    Healthy: the control, ρ of the true gradient, is ≥ .98; below that nothing is judged.
    Fooled by: norms (it is a norm-weighted cosine at first order), float32, a step that is absolute in size.
    Null: the random vector, given with it, which lies near 0.

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
        double = float64_copy(snapshot)
        signals, missing = _signals(double, "rho")
        steps = EPSILON * _medians(double)
        pairs = [self._at(double, level, signals[level], steps[level]) for level in range(snapshot.depth + 1)]
        predicted, changes = (torch.stack(column) for column in zip(*pairs, strict=True))
        values = vmap(vmap(pearson, in_dims=(0, None)))(predicted, changes)
        *found, epsilon = lists(*_three(values, double), steps)
        rho = Rho(credit=found[0], control=found[1], random=found[2], directions=self.directions, epsilon=epsilon)
        return Measured({"rho": rho}, missing)

    def _at(self, double: Snapshot, level: int, given: list[Tensor], step: Tensor) -> tuple[Tensor, Tensor]:
        """What each signal and a random vector predict at one state, and what happens, per sample and direction."""
        h, (x, y), before = double.observation.states[level], double.probe, double.tail_losses[level]
        m, shape, g = self.directions, tuple(h.shape[1:]), given[-1]
        generator = probe_generator(double.seed, double.epoch, f"rho/{level}", g.device)
        signals = torch.stack([*given, gaussian(tuple(g.shape), generator)])
        predicted, changes = [], []
        for rows in _chunks(len(h), (_ENTRIES_GPU if g.is_cuda else ENTRIES) // (m * g.shape[1])):
            directions = units(gaussian((len(h[rows]), m, g.shape[1]), generator))[0]
            predicted.append(predicted_changes(signals[:, rows], directions, step))
            for part in _chunks(len(directions), entries_at_once(h, ENTRIES, _SHARE_GPU) // (m * math.prod(shape))):
                steps = lift(step * directions[part].flatten(0, 1), shape, double.view)
                moved = h[rows][part].repeat_interleave(m, dim=0) + steps
                del steps  # as large as what the tail is about to need
                after = double.tail_loss(level, moved, y[rows][part].repeat_interleave(m, dim=0), x=x[rows][part])
                changes.append(after.reshape(-1, m) - before[rows][part].unsqueeze(1))
        return torch.cat(predicted, dim=1), torch.cat(changes)


@dataclass(frozen=True)
class NudgeProbe(Probe):
    """Does a step along the credit lower the loss?

    Measures: mean ℓ(h − η·med‖h‖·c/‖c‖) − ℓ(h), η = 1e-2, for the credit, the true gradient and a random vector.
    Healthy: negative for the credit, with an efficiency of some tenths of the gradient's.
    Fooled by: samples with a zero vector (left out for all three); curvature, since the step is not infinitesimal.
    Null: the random unit vector, given with it.
    """

    name: ClassVar[str] = "nudge"
    unit: ClassVar[str] = "nats"
    needs: ClassVar[tuple[Need, ...]] = ("states", "references", "tail")
    fields: ClassVar[tuple[str, ...]] = ("nudge",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """One tail pass per state over samples × vectors."""
        double = float64_copy(snapshot)
        signals, missing = _signals(double, "nudge")
        sizes = ETA * _medians(double)
        values = torch.stack([_changes(double, level, signals[level], sizes[level]) for level in range(len(sizes))])
        credit, reference, random = _three(values, double)
        found = lists(credit, reference, random, efficiency(credit, reference))
        nudge = Nudge(credit=found[0], reference=found[1], random=found[2], efficiency=found[3], eta=ETA)
        return Measured({"nudge": nudge}, missing)


def _changes(double: Snapshot, level: int, given: list[Tensor], size: Tensor) -> Tensor:
    """Mean loss change against each signal and a random vector, over the samples where every one has a direction."""
    h, (x, y), before = double.observation.states[level], double.probe, double.tail_losses[level]
    g = given[-1]
    noise = gaussian(tuple(g.shape), probe_generator(double.seed, double.epoch, f"nudge/{level}", g.device))
    steps, defined = nudge_step(torch.stack([*given, noise], dim=1), size)
    m, shape = steps.shape[1], tuple(h.shape[1:])
    after = []
    for rows in _chunks(len(h), entries_at_once(h, ENTRIES, _SHARE_GPU) // (m * math.prod(shape))):
        moved = h[rows].repeat_interleave(m, dim=0) + lift(steps[rows].flatten(0, 1), shape, double.view)
        after.append(double.tail_loss(level, moved, y[rows].repeat_interleave(m, dim=0), x=x[rows]).reshape(-1, m))
    return mean_change(before, torch.cat(after).T, defined.all(dim=1))


def _medians(double: Snapshot) -> Tensor:
    return norm_stats(by_state(vector_norms, states_in_view(double))).median


def _signals(double: Snapshot, name: str) -> tuple[list[list[Tensor]], dict[str, str]]:
    """Per state the credit, if it is known and not the reference itself, and the reference; why the credit is absent.

    The control and the random vector are worth having without a credit.
    """
    references = references_in_view(double)
    if all(double.exact):
        return [[g] for g in references], {}
    try:
        return [[c, g] for c, g in zip(credits_in_view(double), references, strict=True)], {}
    except NotMeasured as why:
        return [[g] for g in references], {f"{name}.credit": str(why)}


def _three(values: Tensor, double: Snapshot) -> tuple[Tensor, Tensor, Tensor]:
    """Credit's, reference's and random vector's column of values per state and vector; NaN for a credit not known."""
    reference, random = values[:, -2], values[:, -1]
    if values.shape[1] == 3:
        return values[:, 0], reference, random
    return reference if all(double.exact) else torch.full_like(reference, math.nan), reference, random


def _chunks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, max(1, size)):
        yield slice(start, start + max(1, size))
