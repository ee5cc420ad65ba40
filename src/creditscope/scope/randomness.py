"""The randomness of a process: torch, numpy and Python, seeded inside and as before outside."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, everything that a user's code may draw from starts from the seed; outside it is as if nothing was drawn.

    Args:
        seed: Of torch on every device, numpy and Python.
    """
    kept = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
