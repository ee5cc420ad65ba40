"""How much memory a fleet will take, and splitting fleets to fit it."""

import math
import os
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from creditscope.blocks import CreditRule
from creditscope.data.batches import PAD
from creditscope.engine.footprint import (
    Shapes,
    expensive_peak,
    forward_peak,
    parameter_sizes,
    probe_peak,
    state_size,
    step_peak,
)
from creditscope.engine.optim import moments_of
from creditscope.engine.scores import eval_chunk
from creditscope.engine.step import dtype_of
from creditscope.records import RunSpec
from creditscope.rules.build import Given, rule_of

# Depths that are forecast from shallower ones: a multiple of what any of our models is built in.
_BLOCKS = 6
# Copies of every parameter that a fleet keeps besides the moments: the parameters and their start.
KEPT = 2
# What an epoch boundary, and the undoing of a recording's warm-ups, copy besides the moments: the parameters.
COPIED = 1
# For a weight matrix, movement holds the matrix, its start and two products, in float64.
MOVEMENT_BYTES = 4 * 8
# Per test image or token of a run: its loss as it comes and joined, and whether it was right, as bits and as a number.
SCORE_BYTES = 8 + 8 + 1 + 1 + 8
# An image's place in the order and its crop; a label.
DRAW_BYTES, LABEL_BYTES = 4 + 3, 8
# What the library of matrix products takes on a GPU: 32 MiB for each CUDA stream that calls it.
WORKSPACE = 32 * 2**20
# What recordings take besides their tensors on a GPU, in whole segments of the allocator, as benchmarks/growth.py
# found.
RECORDINGS = 256 * 2**20
# What may be planned for: the allocator, the data and the rest of the program need room too.
SHARE = 0.8


def fleet_bytes(fleet: Sequence[RunSpec], device: str = "cuda", rules: Given | None = None) -> int:
    """Bytes that a fleet will take at its peak, from the shapes of its tensors.

    On a CPU the parts of an epoch follow each other in the same memory. On a GPU each part is recorded once and its
    memory stays its own, and while the step is recorded the state is kept twice more. The expensive probes of one run
    are not in it on a GPU: there they take a share of its memory, whatever the fleet, and ``SHARE`` leaves it to them.

    Args:
        fleet: Its runs, of one of our models.
        device: ``cpu`` or ``cuda``.
        rules: Rules from outside, by name.
    """
    depth = fleet[0].depth or 0
    if depth > 4 * _BLOCKS:  # each block more takes as much as the one before
        rest = depth % _BLOCKS
        low, high = (fleet_bytes(_as_deep(fleet, rest + times * _BLOCKS), device, rules) for times in (1, 2))
        return high + (high - low) * ((depth - rest) // _BLOCKS - 2)
    spec, runs = fleet[0], len(fleet)
    shapes = _shapes(spec)
    sizes = parameter_sizes(shapes)
    one = shapes.dtype.itemsize * sum(sizes.values())
    state = runs * one
    kinds = [_kind(each, rules or {}) for each in fleet]
    groups = Counter(kinds)
    penalised = {kind for kind, each in zip(kinds, fleet, strict=True) if each.penalty}
    feedback = sum(shapes.dtype.itemsize * n * state_size(shapes, rule) for rule, n in groups.items())
    steps = [step_peak(shapes, rule, rule in penalised, spec.batch or 1, n) for rule, n in groups.items()]
    tokens = None if spec.data is None else spec.data.tokens
    tested = (spec.data and spec.data.n_test) or eval_chunk(tokens)
    probed = min(tested, (spec.probe and spec.probe.n) or 1024)
    # A GPU takes all probe samples at once.
    observed = probed if device == "cuda" else min(probed, (spec.probe and spec.probe.batch) or 128)
    observing = [probe_peak(shapes, rule, observed, device, n) for rule, n in groups.items()]
    image = shapes.item * math.prod(shapes.input)
    chunk = min(tested, eval_chunk(tokens))
    score = chunk * image + forward_peak(shapes, chunk, runs) + runs * tested * (tokens or 1) * SCORE_BYTES
    moved = runs * MOVEMENT_BYTES * max(size for name, size in sizes.items() if "blocks." in name)
    # The module whose forward pass all runs share has parameters too.
    moments = moments_of(spec.optimiser) if spec.optimiser is not None else 2
    copied = (COPIED + moments) * state
    kept = one + (KEPT + moments) * state + feedback + _data_bytes(fleet, device) + copied
    if device == "cuda":
        recorded = _batches(fleet, shapes) + sum(steps) + probed * image + sum(observing) + score + moved
        return kept + copied + recorded + WORKSPACE * (3 + len(groups)) + RECORDINGS
    probing = max(_expensive(spec, rule, shapes, probed, observed) for rule in groups)
    step = _batches(fleet, shapes) + max(steps)
    # While an epoch is measured the state before it and that after it are kept.
    return kept + max(step, copied + max(probed * image + max(observing), score, moved, probing))


def least_bytes(spec: RunSpec) -> int:
    """Bytes that a run alone takes at the very least, from the shapes of its parameters: nothing is allocated.

    Args:
        spec: The run, of one of our models.
    """
    moments = moments_of(spec.optimiser) if spec.optimiser is not None else 2
    shapes = _shapes(spec)
    return (1 + KEPT + moments) * shapes.dtype.itemsize * sum(parameter_sizes(shapes).values())


def _as_deep(fleet: Sequence[RunSpec], depth: int) -> list[RunSpec]:
    changes: list[dict[str, Any]] = [
        {"depth": depth} | ({"train_last": min(each.train_last, depth)} if isinstance(each.train_last, int) else {})
        for each in fleet
    ]
    return [each.model_copy(update=change) for each, change in zip(fleet, changes, strict=True)]


def all_bytes(device: torch.device) -> int:
    """Bytes that a device has, in use or not.

    Args:
        device: The fleet's device.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_bytes(device: torch.device) -> int:
    """Bytes that may be planned for on a device now.

    Args:
        device: The fleet's device.
    """
    if device.type == "cuda":
        return int(SHARE * torch.cuda.mem_get_info(device)[0])
    return int(SHARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def split(
    fleet: Sequence[RunSpec],
    limit: int | None,
    size: int | None,
    device: str = "cuda",
    rules: Given | None = None,
) -> list[list[RunSpec]]:
    """Split a fleet into parts of about equal numbers of runs, as few as fit.

    Args:
        fleet: The runs.
        limit: Bytes a part may take; None: any. A single run is never split, so a part may exceed it.
        size: Runs a part may hold; None: any.
        device: Their device, ``cpu`` or ``cuda``.
        rules: Rules from outside, by name.
    """
    count = 1 if size is None else math.ceil(len(fleet) / size)
    parts = _parts(fleet, count)
    while limit is not None and count < len(fleet) and any(fleet_bytes(part, device, rules) > limit for part in parts):
        count += 1
        parts = _parts(fleet, count)
    return parts


def _parts(fleet: Sequence[RunSpec], count: int) -> list[list[RunSpec]]:
    bounds = [round(part * len(fleet) / count) for part in range(count + 1)]
    return [list(fleet[a:b]) for a, b in pairwise(bounds) if b > a]


def _kind(spec: RunSpec, rules: Given) -> CreditRule:
    """The rule of a run, the same for runs that are mapped together: float options make no other tensors."""
    plain = {name: value for name, value in (spec.options or {}).items() if not isinstance(value, float)}
    return rule_of(spec.model_copy(update={"options": plain or None}), rules)


def _shapes(spec: RunSpec) -> Shapes:
    assert spec.data is not None
    assert spec.data.shape is not None
    return Shapes(
        model=spec.model or "",
        input=spec.data.shape,
        classes=spec.classes or 2,
        width=spec.width or 1,
        depth=spec.depth or 1,
        terminal_ln=spec.terminal_ln is not False,
        view=spec.view or "flat",
        dtype=dtype_of(spec),
        options=tuple(sorted((spec.architecture or {}).items())),
        tokens=spec.data.tokens,
    )


def _expensive(spec: RunSpec, rule: CreditRule, shapes: Shapes, probed: int, batch: int) -> int:
    """The expensive probes of one run, with the samples that readouts are fitted and tested on."""
    assert spec.data is not None
    image = shapes.item * math.prod(shapes.input)
    others = min(spec.data.n_train or 0, 4 * probed) + min(spec.data.n_test or 0, 2 * probed) + (spec.batch or 1)
    directions = (spec.probe and spec.probe.directions) or 1
    return image * others + expensive_peak(shapes, rule, probed, batch, directions)


def _batches(fleet: Sequence[RunSpec], shapes: Shapes) -> int:
    """One batch of every run: as stored and cropped once a seed, then as numbers for each run."""
    spec = fleet[0]
    seeds = len({each.seed for each in fleet})
    samples = (spec.batch or 1) * math.prod(shapes.input)
    stored = 3 if spec.augment == "crop4+flip" else 1
    per_run = len(fleet) if seeds < len(fleet) else 0
    return samples * (max(seeds * stored, per_run * shapes.item) + seeds * shapes.item)


def _data_bytes(fleet: Sequence[RunSpec], device: str) -> int:
    """The data set on the fleet's own device, its padded copy, and what is drawn of it; on a CPU it is there anyway."""
    spec = fleet[0]
    assert spec.data is not None
    shape = spec.data.shape or ()
    train, test = spec.data.n_train or 0, spec.data.n_test or 0
    stored = math.prod(shape) * (LABEL_BYTES if spec.data.tokens else 1 if len(shape) == 3 else 4)
    labels = LABEL_BYTES * (spec.data.tokens or 1)
    own = (train + test) * (stored + labels) if device == "cuda" else 0
    padded = 0
    if spec.augment == "crop4+flip":
        channels, height, width = shape
        padded = train * channels * (height + 2 * PAD) * (width + 2 * PAD)
    drawn = len({each.seed for each in fleet}) * train * DRAW_BYTES
    random = len(fleet) * train * labels if any(each.targets == "random" for each in fleet) else 0
    return own + padded + drawn + random
