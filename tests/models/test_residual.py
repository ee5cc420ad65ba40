"""The residual block."""

import torch
from torch import nn

from creditscope.models.residual import Residual


def test_it_adds_its_branch_to_its_input():
    block = Residual(nn.Linear(3, 3))
    h = torch.ones(2, 3)
    assert torch.equal(block(h), h + block.branch(h))
