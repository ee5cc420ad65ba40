"""Task, the gradient helper and the published index."""

import numpy as np
import torch
from cases.models import CONV_BLOCKS, TokenNet, batch_of, conv_net, resmlp, task_of, vit
from torch import nn

from creditscope.blocks import Blocks, Task, published_index
from creditscope.blocks.task import input_gradient


def test_a_task_knows_shapes_and_outputs():
    task = task_of(vit(), batch_of((2, 8, 8), 3).x)
    assert task.shapes == ((5, 8),) * 3
    assert (task.outputs, task.input_shape, task.input_dtype) == (3, (2, 8, 8), None)
    assert task_of(conv_net(), batch_of((1, 4, 4), 3).x, CONV_BLOCKS).shapes[-1] == (5,)


def test_a_task_on_indices_knows_their_dtype():
    assert task_of(TokenNet(), torch.tensor([[0, 1]])).input_dtype == torch.int64


def test_a_task_leaves_buffers_as_found():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double().train()
    task = Task.of(Blocks.of(model, ["1"]), lambda z, y: z.sum(1), batch_of((5,), 3).x)
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    assert int(model[1].num_batches_tracked) == 0
    assert set(task.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_the_error_of_cross_entropy_is_softmax_minus_onehot():
    batch = batch_of((5,), 4)
    task = task_of(resmlp(), batch.x)
    logits = torch.randn(3, 4, dtype=torch.float64) * 3
    z = np.exp(logits.numpy())
    wanted = z / z.sum(1, keepdims=True) - np.eye(4)[batch.y]
    np.testing.assert_allclose(task.error(logits, batch.y), wanted, rtol=1e-10, atol=1e-15)


def test_the_error_follows_the_loss_it_is_given():
    y = torch.randn(3, 4, dtype=torch.float64)
    task = Task.of(Blocks.of(resmlp()), lambda z, y: (z - y).square().sum(1), batch_of((5,), 4).x)
    logits = torch.randn(3, 4, dtype=torch.float64)
    np.testing.assert_allclose(task.error(logits, y), 2 * (logits - y), rtol=1e-12)


def test_input_gradient_is_per_sample():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    np.testing.assert_allclose(input_gradient(lambda v: (v**3).sum(1), x, Blocks.of(resmlp())), 3 * x.numpy() ** 2)


def test_the_published_index_is_one_block_off():
    c = tuple(torch.tensor([float(level)]) for level in range(4))
    assert published_index(c, [False] * 4) == (c[1], c[2], c[3], c[3])
    assert published_index(c, [False, False, False, True]) == (c[1], c[2], c[3], c[3])


def test_backprop_has_no_index_to_be_off_by():
    c = tuple(torch.tensor([float(level)]) for level in range(4))
    assert published_index(c, [True] * 4) == c
