"""How much memory a fleet will take, and fleets cut to what there is."""

import math
import os
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from creditscope.engine.fleet import EVAL_CHUNK
from creditscope.engine.step import dtype_of
from creditscope.models import build_model
from creditscope.records import RunSpec

# Parameters, both moments, the initial values, the gradient, and the copy of the first three at an epoch boundary.
COPIES = 8
# Forward values are kept for the backward pass, which makes as many.
PASSES = 2
# What may be planned for: the allocator, the data and the rest of the program need room too.
SHARE = 0.8


def run_bytes(spec: RunSpec) -> int:
    """Bytes that one run adds to a fleet: its state, its feedback and the values of one batch. An estimate.

    Args:
        spec: The run, of one of our models.
    """
    assert spec.data is not None
    assert spec.data.shape is not None
    parameters, values = _shape(
        spec.model or "", spec.data.shape, spec.classes or 2, spec.width or 1, spec.depth or 1, spec.terminal_ln
    )
    largest_batch = max(spec.batch or 1, (spec.probe and spec.probe.batch) or 1, EVAL_CHUNK)
    size = torch.empty((), dtype=dtype_of(spec)).element_size()
    return size * (COPIES * parameters + _feedback(spec, parameters) + PASSES * largest_batch * values)


def fleet_bytes(fleet: Sequence[RunSpec]) -> int:
    """Bytes that a fleet will take. An estimate.

    Args:
        fleet: Its runs.
    """
    return sum(run_bytes(spec) for spec in fleet)


def free_bytes(device: torch.device) -> int:
    """Bytes that may be planned for on a device now.

    Args:
        device: Where the fleet would live.
    """
    if device.type == "cuda":
        return int(SHARE * torch.cuda.mem_get_info(device)[0])
    return int(SHARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def cut(fleet: Sequence[RunSpec], limit: int | None, size: int | None) -> list[list[RunSpec]]:
    """Cut a fleet into parts of about equal numbers of runs.

    Args:
        fleet: The runs.
        limit: Bytes a part may take; None: any. A single run is never cut, so a part may exceed it.
        size: Runs a part may hold; None: any.
    """
    parts = 1 if size is None else math.ceil(len(fleet) / size)
    if limit is not None:
        parts = max(parts, min(len(fleet), math.ceil(fleet_bytes(fleet) / max(1, limit))))
    bounds = [round(part * len(fleet) / parts) for part in range(parts + 1)]
    return [list(fleet[a:b]) for a, b in pairwise(bounds) if b > a]


def _feedback(spec: RunSpec, parameters: int) -> int:
    width, depth = spec.width or 1, spec.depth or 1
    if spec.rule == "dfa":
        return depth * width * (spec.classes or 2)
    return {"bp": 0, "fa-block": depth * width * width}.get(spec.rule, parameters)


@lru_cache(maxsize=64)
def _shape(
    name: str, shape: tuple[int, ...], classes: int, width: int, depth: int, terminal_ln: bool | None
) -> tuple[int, int]:
    """Parameters of a model, and values that its modules put out for one sample: from shapes alone."""
    values = 0

    def count(module: nn.Module, given: object, out: object) -> None:
        nonlocal values
        values += out.numel() if isinstance(out, Tensor) else 0

    with torch.device("meta"):
        model = build_model(name, shape, classes, width, depth, terminal_ln is not False)
        handles = [module.register_forward_hook(count) for module in model.modules()]
        try:
            model(torch.empty(1, *shape))
        finally:
            for handle in handles:
                handle.remove()
    return sum(p.numel() for p in model.parameters()), values
