"""Backprop against plain ``loss.backward()``, with the penalty in the global loss."""

import numpy as np
import pytest
import torch
from cases.models import CONV_BLOCKS, assign, batch_of, conv_net, params_of, resmlp, task_of
from torch.nn import functional

from creditscope.rules.backprop import Backprop


@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_the_penalty_joins_the_global_loss_and_reaches_the_embedding(lam):
    model, batch = resmlp(), batch_of((5,), 4)
    task, params = task_of(model, batch.x), params_of(model)
    got = assign(Backprop(), task, params, {}, batch, torch.tensor(lam, dtype=torch.float64)).grads
    h = model.embed(batch.x)
    loss = torch.zeros((), dtype=torch.float64)
    for block in model.blocks:
        f = block.branch(h)
        loss = loss + lam * f.square().sum(1).mean()
        h = h + f
    (loss + functional.cross_entropy(model.head(model.out_ln(h)), batch.y)).backward()
    for name, p in model.named_parameters():
        np.testing.assert_allclose(got[name], p.grad, rtol=1e-9, atol=1e-13, err_msg=name)
    plain = assign(Backprop(), task, params, {}, batch, None).grads
    assert torch.equal(plain["embed.weight"], got["embed.weight"]) == (lam == 0)


def test_a_user_model_with_feature_maps():
    model, batch = conv_net(), batch_of((1, 4, 4), 3)
    task = task_of(model, batch.x, CONV_BLOCKS)
    assert task.blocks.skips == (True, False, False)
    lam = torch.tensor(0.2, dtype=torch.float64)
    got = assign(Backprop(), task, params_of(model), {}, batch, lam).grads
    h0 = torch.tanh(model.stem(batch.x))
    h1 = model.same(h0)
    h2 = model.down(h1)
    h3 = model.flat(h2)
    size = sum(f.flatten(1).square().sum(1).mean() for f in (h1 - h0, h2, h3))
    (functional.cross_entropy(model.head(h3), batch.y) + 0.2 * size).backward()
    for name, p in model.named_parameters():
        np.testing.assert_allclose(got[name], p.grad, rtol=1e-9, atol=1e-13, err_msg=name)


def test_no_feedback():
    model, batch = resmlp(), batch_of((5,), 4)
    assert Backprop().init(task_of(model, batch.x), params_of(model), torch.Generator()) == {}
