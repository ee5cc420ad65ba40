"""Probe: one quantity of the expensive set, from a snapshot alone."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from creditscope.blocks import Snapshot, view_signal, view_state
from creditscope.errors import NotMeasured
from creditscope.probes.functional.tokens import keep_live

# Entries of states that are worked on together: operations as few and large as memory allows. On a CPU
# an operation costs little compared with its entries, and they should stay in the cache.
_TOGETHER_CPU, _TOGETHER_GPU = 2**20, 2**24
_planned = ContextVar("planned", default="cpu")

Need = Literal["states", "references", "delivered", "tail", "feedback", "train", "update", "fit", "test"]


@dataclass(frozen=True)
class Measured:
    """What a probe returns.

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


def float64_copy(snapshot: Snapshot) -> Snapshot:
    """The same run in float64, whose states must be finite.

    Args:
        snapshot: The run.
    """
    double = snapshot.in_dtype(torch.float64)
    if double.first_broken is not None:
        raise NotMeasured(f"the run has diverged: state {double.first_broken} is not finite even in float64")
    return double


def states_in_view(snapshot: Snapshot) -> list[Tensor]:
    """h_0..h_L as one vector per sample.

    Args:
        snapshot: The run.
    """
    return [view_state(h, snapshot.view) for h in snapshot.observation.states]


def references_in_view(snapshot: Snapshot) -> list[Tensor]:
    """g_0..g_L as one vector per sample.

    Args:
        snapshot: The run.
    """
    return [view_signal(g, snapshot.view) for g in snapshot.observation.references]


def credits_in_view(snapshot: Snapshot) -> list[Tensor]:
    """c_0..c_L as one vector per sample, without tokens that cannot reach the loss.

    Args:
        snapshot: The run.
    """
    pairs = zip(snapshot.delivered, snapshot.observation.references, strict=True)
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


def stacks(*columns: Sequence[Tensor]) -> Iterator[tuple[list[int], list[Tensor]]]:
    """States of equal shape, stacked on a first axis: a GPU does one large operation as fast as a small one.

    Args:
        columns: One tensor a state (or block) each; where shapes agree in the first they agree in all.

    Returns:
        Which states, and one stack for each column.
    """
    alike: dict[torch.Size, list[int]] = {}
    for at, tensor in enumerate(columns[0]):
        alike.setdefault(tensor.shape, []).append(at)
    for shape, states in alike.items():
        size = max(1, _together(columns[0][states[0]]) // max(1, shape.numel()))
        for start in range(0, len(states), size):
            some = states[start : start + size]
            yield some, [_stack([column[at] for at in some]) for column in columns]


def by_state(function: Callable[..., Tensor], *columns: Sequence[Tensor]) -> Tensor:
    """One row a state, by a function of stacks.

    Args:
        function: Takes one stack a column, gives one row for each entry of their first axis.
        columns: One tensor a state (or block) each.
    """
    rows: dict[int, Tensor] = {}
    for states, stacked in stacks(*columns):
        rows |= dict(zip(states, function(*stacked), strict=True))
    return torch.stack([rows[at] for at in range(len(rows))])


def _stack(tensors: list[Tensor]) -> Tensor:
    # One state alone may be large: it is not copied.
    return torch.stack(tensors) if len(tensors) > 1 else tensors[0].unsqueeze(0)


def _together(like: Tensor) -> int:
    device = _planned.get() if like.is_meta else like.device.type
    return _TOGETHER_GPU if device == "cuda" else _TOGETHER_CPU


@contextmanager
def planned_for(device: str) -> Iterator[None]:
    """Inside, tensors that are shapes alone are worked on as those of a device would be.

    Args:
        device: ``cpu`` or ``cuda``.
    """
    before = _planned.set(device)
    try:
        yield
    finally:
        _planned.reset(before)


def entries_at_once(like: Tensor, on_cpu: int, share: float) -> int:
    """Entries that may be held at once: so many on a CPU, on a GPU a share of its memory.

    Args:
        like: A tensor of their kind and on their device.
        on_cpu: How many on a CPU.
        share: Of a GPU's memory.
    """
    if not like.is_cuda:
        return on_cpu
    memory = torch.cuda.get_device_properties(like.device).total_memory
    return int(share * memory) // like.element_size()


def numbers(values: Tensor | Sequence[Tensor]) -> list[float | None]:
    """A list for a row: NaN, which stands for undefined in our maths, becomes None.

    Args:
        values: One entry a state or block.
    """
    if not len(values):
        return []
    return lists(values if isinstance(values, Tensor) else torch.stack(list(values)))[0]


def lists(*values: Tensor) -> list[list[float | None]]:
    """As ``numbers``, for several lists at once: the device is waited for a single time.

    Args:
        values: One entry a state or block each.
    """
    flat = iter(torch.cat([value.double() for value in values]).tolist())
    return [[None if (number := next(flat)) != number else number for _ in range(len(value))] for value in values]
