"""Growth where states are not alike."""

import numpy as np
import pytest
import torch
from scope.nets import Net, samples
from torch import nn

import creditscope as cs
from creditscope.scope.growth import per_element

FAST = {"redraws": 0, "directions": 1}


class PostNorm(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.linear, self.norm, self.scale = nn.Linear(width, width), nn.LayerNorm(width), scale

    def forward(self, h):
        return self.norm(h + self.scale * self.linear(h))


class PostNormNet(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(PostNorm(8, scale) for scale in (1.0, 400.0))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def test_growth_is_taken_before_a_normaliser_that_ends_a_block():
    model = PostNormNet()
    x, y = samples()
    audit = cs.audit_model(model, loader=(x, y), **FAST)
    log = audit.claims[0].cell.runs[0]
    with torch.no_grad():
        h, wanted = model.embed(x), []
        for block in model.blocks:
            inside = h + block.scale * block.linear(h)
            wanted.append(np.median(inside.norm(dim=1)) / np.median(h.norm(dim=1)))
            h = block.norm(inside)
    np.testing.assert_allclose(log.epochs[0].growth, wanted, rtol=1e-5)
    assert wanted[1] > 50
    assert any("blocks.1 ends in a normaliser: its growth is taken on the sum before it" in n for n in log.problems)
    assert next(str(o.ruling) for o in audit.claims[0].outcomes if o.name == "scale") == "fires"


def test_a_normaliser_inside_a_block_changes_nothing():
    log = cs.audit_model(Net(), loader=samples(), **FAST).claims[0].cell.runs[0]
    hidden = log.epochs[0].hidden.median
    np.testing.assert_allclose(log.epochs[0].growth, np.divide(hidden[1:], hidden[:-1]))


def test_growth_per_element():
    assert per_element([2.0, None, 3.0], ((4,), (2, 8), (1,), (9,))) == [pytest.approx(1.0), None, pytest.approx(1.0)]


class InPlace(nn.Module):
    """A residual block as convolutional nets write it: the skip is added in place to what the normaliser put out."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, h):
        out = self.norm(self.linear(h))
        out += h
        return torch.relu_(out)


def test_a_skip_added_in_place_is_no_normaliser_at_the_end():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), InPlace(), InPlace(), nn.Linear(8, 4))
    log = cs.audit_model(model, loader=samples(), blocks=["1", "2"], **FAST).claims[0].cell.runs[0]
    hidden = log.epochs[0].hidden.median
    np.testing.assert_allclose(log.epochs[0].growth, np.divide(hidden[1:], hidden[:-1]))
    assert not any("normaliser" in note for note in log.problems)


def test_a_normaliser_at_the_end_and_unlike_shapes_together():
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32))
    model = nn.Sequential(nn.Linear(6, 8), wide, nn.Linear(32, 4))
    x, y = samples()
    log = cs.audit_model(model, loader=(x, y), blocks=["1"], **FAST).claims[0].cell.runs[0]
    with torch.no_grad():
        h = model[0](x)
        inside = wide[0](h)
        wanted = np.median(inside.norm(dim=1)) / 32**0.5 / (np.median(h.norm(dim=1)) / 8**0.5)
    np.testing.assert_allclose(log.epochs[0].growth, [wanted], rtol=1e-5)
