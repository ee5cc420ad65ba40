"""Any loss as one value per sample."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from creditscope.errors import BadInput
from creditscope.scope.losses import per_sample

Z, Y = (
    torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    torch.tensor([0, 1, 2, 3, 0, 1]),
)
WANTED = -torch.log_softmax(Z, 1)[torch.arange(6), Y]


@pytest.mark.parametrize(
    "loss",
    [
        None,
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(reduction="none"),
        functional.cross_entropy,
    ],
)
def test_mean_sum_and_per_sample_losses_give_the_same_values(loss):
    torch.testing.assert_close(per_sample(loss, Z[:2], Y[:2])(Z, Y), WANTED)


def test_a_smoothed_loss_and_a_squared_one():
    smooth = per_sample(nn.CrossEntropyLoss(label_smoothing=0.1), Z[:2], Y[:2])
    log = torch.log_softmax(Z, 1)
    torch.testing.assert_close(smooth(Z, Y), 0.9 * WANTED - 0.1 * log.mean(1))
    targets = functional.one_hot(Y, 4).double()
    torch.testing.assert_close(per_sample(nn.MSELoss(), Z[:2], targets[:2])(Z, targets), ((Z - targets) ** 2).mean(1))


def batch_level(z, y):
    return functional.cross_entropy(z, y) + (z.mean(0) ** 2).sum()


@pytest.mark.parametrize(
    ("loss", "y", "says"),
    [
        (batch_level, Y, "is neither mean .* nor sum of its samples' losses: .* pass one with reduction='none'"),
        (nn.CrossEntropyLoss(weight=torch.tensor([9.0, 1, 1, 1]).double()), Y, "class weights or a batch-level loss"),
        (
            nn.MSELoss(reduction="none"),
            functional.one_hot(Y, 4).double(),
            r"one a sample \(6,\), got shape \(6, 4\); sum it",
        ),
        (lambda z, y: 1.0, Y, "wanted a tensor from loss_fn, got float; return the loss itself"),
        (lambda z: z, Y, r"loss_fn failed on outputs \(6, 4\) and targets \(6,\) torch.int64: TypeError"),
        (None, torch.zeros(6, 4), "are no class labels of outputs"),
    ],
)
def test_a_loss_that_cannot_be_used_is_refused_in_one_line(loss, y, says):
    with pytest.raises(BadInput, match=says) as error:
        per_sample(loss, Z, y)
    assert "\n" not in str(error.value)


def test_a_loss_that_vmap_cannot_map_is_refused():
    def loss(z, y):
        return functional.cross_entropy(z, y) * (1.0 if float(z.sum()) < 1e9 else 2.0)

    with pytest.raises(BadInput, match=r"cannot be mapped over single samples \(RuntimeError: .*\); pass one with"):
        per_sample(loss, Z, Y)
