"""How far the weights of a fleet, and the state of rules that learn, moved from their start."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.engine.groups import Group
from creditscope.engine.optim import Stack
from creditscope.probes.functional.movement import movements
from creditscope.records.measured import Movement


@dataclass(frozen=True)
class FleetMovement:
    """Movement of every weight matrix of the blocks, and of every matrix of a learning rule's state.

    Args:
        params: The fleet's parameters.
        init: The same at initialisation.
        groups: Its groups.
        blocks: Names of each block's weight matrices.
        trained: Names of the parameters that train, run by run.
    """

    params: Stack
    init: Stack
    groups: Sequence[Group]
    blocks: list[list[str]]
    trained: Sequence[frozenset[str]]

    def measure(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Of the weights, (matrices, runs), and of each group's state; empty where nothing of it learns."""
        weights = torch.stack([movements(self.params[name], self.init[name]) for name in self._names])
        feedback = []
        for group in self.groups:
            moved = [movements(group.state[name], group.initial[name]) for name in _learning(group)]
            feedback.append(torch.stack(moved) if moved else weights[:0])
        return weights, tuple(feedback)

    def rows(self, moved: Tensor, feedback: tuple[Tensor, ...]) -> list[Movement]:
        """The same for the log, run by run.

        Args:
            moved: Of the weights, from ``measure``.
            feedback: Of each group's state, from ``measure``.
        """
        pairs = zip(self.groups, feedback, strict=True)
        learned = [row for group, found in pairs for row in _rows(group, found)]
        return [
            Movement(
                weights=dict(zip(self._names, weights, strict=True)),
                blocks=self.blocks,
                trainable=[all(name in trained for name in block) for block in self.blocks],
                feedback=own,
            )
            for weights, trained, own in zip(moved.T.tolist(), self.trained, learned, strict=True)
        ]

    @property
    def _names(self) -> list[str]:
        return [name for block in self.blocks for name in block]


def _rows(group: Group, moved: Tensor) -> list[dict[str, float | None] | None]:
    names = _learning(group)
    if not names:
        return [None] * (group.stop - group.start)
    return [dict(zip(names, row, strict=True)) for row in moved.T.tolist()]


def broken_feedback(groups: Sequence[Group], states: Sequence[Stack]) -> list[str | None]:
    """Run by run, the first entry of a learning rule's state that is not finite, or None.

    Args:
        groups: The fleet's groups.
        states: The state of each group's rule.
    """
    found: list[str | None] = []
    for group, state in zip(groups, states, strict=True):
        names = sorted(state) if group.rule.learns else []
        fine = [state[name].isfinite().flatten(1).all(1) for name in names]
        rows = torch.stack(fine, 1).tolist() if fine else [[]] * (group.stop - group.start)
        found += [next((name for name, ok in zip(names, row, strict=True) if not ok), None) for row in rows]
    return found


def _learning(group: Group) -> list[str]:
    """Matrices of a learning rule's state: those that the optimiser trains or, where it trains none, all."""
    if not group.rule.learns:
        return []
    learning = group.first or group.state
    return [name for name, t in group.state.items() if name in learning and t.ndim > 2 and t.is_floating_point()]
