"""CUDA graphs: work recorded once and replayed without the host; on a CPU the same work runs directly."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

_WARM_UPS = 2
T = TypeVar("T")


class Recorded(Generic[T]):
    """Work on tensors at fixed addresses; on CUDA recorded at the first call and replayed from then on.

    Args:
        device: Where they live.
    """

    def __init__(self, device: torch.device) -> None:
        self._records = records(device)
        self._graph: tuple[torch.cuda.CUDAGraph, T] | None = None

    def __call__(self, function: Callable[[], T], live: Callable[[], Sequence[Tensor]] = tuple) -> T:
        """Do the work.

        Args:
            function: The same at every call, without a host decision. The next call overwrites what it returns.
            live: Every tensor that it changes in place: recording needs a few calls, and they are undone.
        """
        if not self._records:
            return function()
        self._graph = self._graph or capture(function, live())
        graph, result = self._graph
        graph.replay()
        return result


def records(device: torch.device) -> bool:
    """Whether work on this device is recorded."""
    return device.type == "cuda"


def capture(function: Callable[[], T], live: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, T]:
    """Record a function; the warm-up calls that recording needs are undone.

    Args:
        function: As in ``Recorded``.
        live: Every tensor that it changes.
    """
    kept = [tensor.clone() for tensor in live]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            function()
            for tensor, old in zip(live, kept, strict=True):
                tensor.copy_(old)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # GPU calls of other threads, such as for pinned memory, are not part of it.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph, result
