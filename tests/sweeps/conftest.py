"""These tensors are too small to share out: one thread is faster, and sums come in one order."""

import pytest
import torch

from creditscope.sweeps.processes import Hand


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def started(monkeypatch):
    """The training processes, as they are started."""
    processes = []
    begin = Hand.__init__

    def began(hand, *given):
        begin(hand, *given)
        processes.append(hand.process)

    monkeypatch.setattr(Hand, "__init__", began)
    return processes
