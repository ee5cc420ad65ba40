"""A step as a CUDA graph: recorded once, replayed without a word from the host."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_WARM_UPS = 2


def capture(step: Callable[[], None], live: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
    """Record a step; the warm-up steps that recording needs are undone.

    Args:
        step: Works in place on tensors at fixed addresses, without a host decision.
        live: Every tensor that it changes.
    """
    kept = [tensor.clone() for tensor in live]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            step()
            for tensor, old in zip(live, kept, strict=True):
                tensor.copy_(old)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph
