"""Which maps are found, and every model that is refused because one of its maps would be skipped."""

import pytest
import torch
from cases.models import CONV_BLOCKS, batch_of, conv_net, params_of, scrambled, task_of
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from creditscope.errors import BadInput
from creditscope.rules.linear_maps import linear_maps


class Net(nn.Module):
    """embed → block → head, with whatever block is given."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.embed, self.block, self.head = nn.Linear(5, 4), block, nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.block(self.embed(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, h):
        return h + self.attn(h[:, None], h[:, None], h[:, None])[0][:, 0]


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, h):
        return h + self.used(h)


class Direct(Unused):
    """Uses a module's weight without calling it."""

    def forward(self, h):
        return h + self.used(h) + h @ self.spare.weight.T


class Loose(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(4, 4))

    def forward(self, h):
        return h + torch.tanh(torch.einsum("ni,ij->nj", h, self.matrix))


class Offset(nn.Module):
    """A parameter with two axes that is added, not multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.linear = nn.Parameter(torch.zeros(1, 4)), nn.Linear(4, 4)

    def forward(self, h):
        return h + self.linear(h + self.offset)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 4, batch_first=True)

    def forward(self, h):
        return h + self.rnn(h[:, None])[0][:, 0]


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(4, 4, 1)

    def forward(self, h):
        return h + self.up(h[:, :, None])[:, :, 0]


OUTSIDE = "a matrix product uses it outside nn.Linear or nn.Conv; rewrite it with one of them"
UNCALLED = (
    "the forward pass never calls this module (it is unused, or its weight is used directly); "
    "call it as a module or remove it"
)
OWN = "its weight is tied to another module or computed from other parameters; give it a weight of its own"


def tied():
    net = Net(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))
    net.block[2].weight = net.block[0].weight
    return net


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Net(Attention()), "'block.attn' (MultiheadAttention): rewrite it with plain nn.Linear maps"),
        (Net(Recurrent()), "'block.rnn' (GRU): rewrite it with plain nn.Linear maps"),
        (Net(Transposed()), "'block.up' (ConvTranspose1d): rewrite it with nn.Linear or nn.Conv"),
        (Net(Unused()), f"'block.spare': {UNCALLED}"),
        (Net(Direct()), f"'block.spare': {UNCALLED}"),
        (Net(Loose()), f"'block.matrix': {OUTSIDE}"),
        (Net(weight_norm(nn.Linear(4, 4))), f"'block': {OWN}"),
        (tied(), f"'block.2': {OWN}"),
    ],
    ids=["attention", "recurrent", "transposed", "unused", "direct", "loose", "weight-norm", "tied"],
)
def test_a_model_with_a_map_that_would_be_skipped_is_refused(model, message):
    model = scrambled(model)
    task = task_of(model, batch_of((5,), 3).x, ("block",))
    with pytest.raises(BadInput) as caught:
        linear_maps(task, params_of(model))
    assert str(caught.value) == f"fa cannot carry {message}"
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_a_parameter_that_is_only_added_is_no_map():
    model = scrambled(Net(Offset()))
    found = linear_maps(task_of(model, batch_of((5,), 3).x, ("block",)), params_of(model))
    assert [(m.name, m.after_blocks) for m in found] == [("block.linear", False), ("head", True)]


def test_maps_come_in_order_with_their_weights_and_place():
    model = conv_net()
    params = params_of(model)
    found = linear_maps(task_of(model, batch_of((1, 4, 4), 3).x, CONV_BLOCKS), params)
    assert [(m.name, m.after_blocks) for m in found] == [
        ("same.conv", False),
        ("down.0", False),
        ("flat.1", False),
        ("head", True),
    ]
    assert all(m.weight is params[f"{m.name}.weight"] for m in found)
