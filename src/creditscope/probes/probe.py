"""Probe: one quantity of the dear set, from a snapshot alone."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from creditscope.blocks import Snapshot, view_signal, view_state
from creditscope.errors import NotMeasured
from creditscope.probes.functional.tokens import keep_live

Need = Literal["states", "references", "delivered", "tail", "feedback", "train", "update", "fit"]


@dataclass(frozen=True)
class Measured:
    """What a probe hands back.

    Args:
        values: Fields of a ``ProbeRow`` by name.
        not_measured: Why a part of a field is absent, by ``field.part``.
    """

    values: dict[str, Any]
    not_measured: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Probe(ABC):
    """A thin shell around pure maths. Final classes state their name, unit, needs and the fields they fill."""

    name: ClassVar[str]
    unit: ClassVar[str]
    needs: ClassVar[tuple[Need, ...]]
    fields: ClassVar[tuple[str, ...]]

    @abstractmethod
    def measure(self, snapshot: Snapshot) -> Measured:
        """Measure one run at one moment; raises NotMeasured where that is impossible.

        Args:
            snapshot: All that a probe may see.
        """


def exact_twin(snapshot: Snapshot) -> Snapshot:
    """The same run in float64, whose states must be finite.

    Args:
        snapshot: The run.
    """
    twin = snapshot.in_dtype(torch.float64)
    for level, h in enumerate(twin.seen.states):
        if not bool(h.isfinite().all()):
            raise NotMeasured(f"the run has diverged: state {level} is not finite even in float64")
    return twin


def states_in_view(snapshot: Snapshot) -> list[Tensor]:
    """h_0..h_L as one vector per sample.

    Args:
        snapshot: The run.
    """
    return [view_state(h, snapshot.view) for h in snapshot.seen.states]


def references_in_view(snapshot: Snapshot) -> list[Tensor]:
    """g_0..g_L as one vector per sample.

    Args:
        snapshot: The run.
    """
    return [view_signal(g, snapshot.view) for g in snapshot.seen.references]


def credits_in_view(snapshot: Snapshot) -> list[Tensor]:
    """c_0..c_L as one vector per sample, without tokens that cannot reach the loss.

    Args:
        snapshot: The run.
    """
    pairs = zip(snapshot.delivered, snapshot.seen.references, strict=True)
    return [credit_in_view(c, g, snapshot.view) for c, g in pairs]


def credit_in_view(c: Tensor, g: Tensor, view: str) -> Tensor:
    """Credit at one state as one vector per sample, without tokens that cannot reach the loss.

    Args:
        c: Credit.
        g: Reference of the same state.
        view: One of ``VIEWS``.
    """
    # One token is live or it is not; there is nothing to leave out of it.
    return view_signal(c if view == "cls" else keep_live(c, g), view)


def numbers(values: Tensor | Sequence[Tensor]) -> list[float | None]:
    """A list for a row: NaN, which stands for undefined in our maths, becomes None.

    Args:
        values: One entry a state or block.
    """
    flat = values.tolist() if isinstance(values, Tensor) else [float(value) for value in values]
    return [None if value != value else value for value in flat]
