"""Seeded draws without hidden state: each follows from (seed, name, index) alone, on the CPU.

The names are ``init``, ``order``, ``augment``, ``feedback``, ``probe`` and ``targets``. No generator is kept from one
epoch to the next, so a resumed run draws what an uninterrupted one would have drawn.
"""

import hashlib

import torch

from creditscope.errors import BadInput


def seeded_generator(seed: int, name: str, index: int = 0) -> torch.Generator:
    """A fresh CPU generator for one named purpose of a run.

    Args:
        seed: The run's seed.
        name: What is drawn.
        index: Which draw of that name, e.g. the epoch.
    """
    word = hashlib.sha256(f"{seed}/{name}/{index}".encode()).digest()[:8]
    generator = torch.Generator(device="cpu")
    generator.manual_seed(int.from_bytes(word, "big") & (2**63 - 1))
    return generator


def epoch_order(seed: int, epoch: int, n: int, batch: int) -> torch.Tensor:
    """The training order of one epoch: a permutation split into batches; a last short batch is dropped.

    Args:
        seed: The run's seed.
        epoch: The epoch.
        n: Training samples.
        batch: Batch size.

    Returns:
        Indices, int64 (steps, batch).
    """
    if not 1 <= batch <= n:
        raise BadInput(f"a batch of {batch} cannot be taken from {n} training samples; choose a batch from 1 to {n}")
    steps = n // batch
    return torch.randperm(n, generator=seeded_generator(seed, "order", epoch))[: steps * batch].reshape(steps, batch)


def epoch_crops(
    seed: int, epoch: int, steps: int, batch: int, pad: int = 4
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The random crops and flips of one epoch, uniform over all (2·pad + 1)² crops and both flips.

    Args:
        seed: The run's seed.
        epoch: The epoch.
        steps: Steps of the epoch.
        batch: Batch size.
        pad: Padding on each side.

    Returns:
        ``shift_y`` and ``shift_x``, int64 in 0..2·pad, and ``flip``, bool; each (steps, batch).
    """
    generator = seeded_generator(seed, "augment", epoch)
    size = (steps, batch)
    shift_y = torch.randint(0, 2 * pad + 1, size, generator=generator)
    shift_x = torch.randint(0, 2 * pad + 1, size, generator=generator)
    flip = torch.randint(0, 2, size, generator=generator) == 1
    return shift_y, shift_x, flip


def random_targets(seed: int, n: int, classes: int) -> torch.Tensor:
    """The random-target control: one fixed random label for each training sample.

    Args:
        seed: The run's seed.
        n: Training samples.
        classes: Number of classes.

    Returns:
        Labels, int64 (n,).
    """
    return torch.randint(0, classes, (n,), generator=seeded_generator(seed, "targets"))
