"""W&B without a network: it reads its environment once a process, so each test begins and ends it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def wandb_offline(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """W&B that uploads nothing and keeps its files in a folder."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(folder))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    wandb.teardown()
    try:
        yield
    finally:
        wandb.teardown()
