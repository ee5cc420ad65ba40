"""Seeded randomness of the probes: one named stream each, drawn on the CPU, so the same on every device."""

import hashlib

import torch
from torch import Tensor


def stream(seed: int, epoch: int, name: str) -> torch.Generator:
    """A CPU generator that depends on nothing but its three arguments.

    Args:
        seed: Seed of the run's probe stream.
        epoch: Epochs done.
        name: What is drawn.
    """
    text = f"{seed}/{epoch}/{name}".encode()
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True))


def gaussian(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Independent standard normal entries, float64 on the device.

    Drawn in float32, which is four times as fast and has no bearing on isotropy.

    Args:
        shape: Of what is drawn.
        generator: From ``stream``.
        device: Where it goes.
    """
    return torch.randn(shape, generator=generator).to(device).double()
