"""What a look at one batch shows, against plain autograd sample by sample."""

import numpy as np
import pytest
import torch
from cases.models import batch_of, params_of, resmlp, seeded_generator, task_of, vit
from torch.nn import functional

from creditscope.blocks import Batch, observe
from creditscope.blocks.observe import zero_taps
from creditscope.rules.build import rule_named


@pytest.mark.parametrize(("make", "shape", "classes"), [(resmlp, (5,), 4), (vit, (2, 8, 8), 3)], ids=["resmlp", "vit"])
def test_references_are_the_gradients_of_each_sample_alone(make, shape, classes):
    model, batch = make(), batch_of(shape, classes)
    seen = observe(task_of(model, batch.x), params_of(model), None, {}, batch)
    assert seen.delivered is None
    for i in range(3):
        h = [torch.as_tensor(seen.states[0][i : i + 1]).detach().requires_grad_()]
        for block in model.blocks:
            h.append(h[-1] + block.branch(h[-1]))
        top = h[-1][:, 0] if make is vit else h[-1]
        logits = model.head(model.out_ln(top))
        loss = functional.cross_entropy(logits, batch.y[i : i + 1])
        np.testing.assert_allclose(seen.loss[i], loss.detach(), rtol=1e-10)
        np.testing.assert_allclose(seen.error[i], torch.autograd.grad(loss, logits, retain_graph=True)[0][0])
        for level, g in enumerate(torch.autograd.grad(loss, h)):
            np.testing.assert_allclose(seen.references[level][i], g[0], rtol=1e-9, atol=1e-14)


def test_references_do_not_depend_on_the_size_of_the_batch():
    model, batch = resmlp(), batch_of((5,), 4, n=6)
    task, params = task_of(model, batch.x), params_of(model)
    whole = observe(task, params, None, {}, batch)
    part = observe(task, params, None, {}, Batch(batch.x[:2], batch.y[:2]))
    for all_g, some_g in zip(whole.references, part.references, strict=True):
        np.testing.assert_allclose(all_g[:2], some_g, rtol=1e-12)


@pytest.mark.parametrize("rule", ["bp", "fa", "fa-block", "dfa"])
def test_delivered_is_what_the_rule_delivers(rule):
    model, batch, rule = resmlp(), batch_of((5,), 4), rule_named(rule)
    task, params = task_of(model, batch.x), params_of(model)
    feedback = rule.init(task, params, seeded_generator())
    seen = observe(task, params, rule, feedback, batch)
    wanted = rule.deliver(task, params, feedback, batch)
    assert all(torch.equal(a, b) for a, b in zip(seen.delivered, wanted, strict=True))


def test_buffers_come_from_the_task():
    model = resmlp()
    model.register_buffer("shift", torch.ones(4, dtype=torch.float64))
    forward = model.forward
    model.forward = lambda x: forward(x) + model.shift
    batch = batch_of((5,), 4)
    task = task_of(model, batch.x)
    other = task._replace(buffers={"shift": torch.full((4,), 5.0, dtype=torch.float64)})
    low, high = (observe(t, params_of(model), None, {}, batch).logits for t in (task, other))
    np.testing.assert_allclose(high - low, 4.0, rtol=1e-12)


def test_taps_take_the_shapes_of_the_states_and_the_dtype_of_the_parameters():
    model, batch = vit(), batch_of((2, 8, 8), 3)
    taps = zero_taps(task_of(model, batch.x), batch.x.float(), params_of(model))
    assert {level: (tuple(t.shape), t.dtype) for level, t in taps.items()} == dict.fromkeys(
        range(3), ((3, 5, 8), torch.float64)
    )
    assert not any(t.any() for t in taps.values())
